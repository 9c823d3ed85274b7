"""dulwich as a client; see driver.py. It finds the test CA in the user's git
configuration (http.sslCAInfo)."""

import io

from dulwich import porcelain
from dulwich.repo import Repo

from driver import serve, write

ADA = b"Ada <ada@example.com>"


def clone(url, dir, depth):
    porcelain.clone(url, dir, depth=depth or None, errstream=io.BytesIO()).close()


def fetch(dir):
    porcelain.fetch(dir, "origin", outstream=io.StringIO(), errstream=io.BytesIO())


def commit(dir, path, text):
    write(dir, path, text)
    with Repo(dir) as repo:
        repo.stage([path])
        message = f"work on {path}\n".encode()
        return {"oid": repo.do_commit(message, committer=ADA, author=ADA).decode()}


def tag(dir, name, message):
    porcelain.tag_create(dir, name.encode(), author=ADA, message=message.encode(), annotated=bool(message))


def push(dir, specs):
    said = io.BytesIO()
    porcelain.push(dir, "origin", specs or None, outstream=io.BytesIO(), errstream=said)
    if b" failed: " in said.getvalue():
        raise RuntimeError(said.getvalue().decode())


def refs(url):
    found = porcelain.ls_remote(url)
    return {"refs": {name.decode(): oid.decode() for name, oid in found.items()}}


serve({f.__name__: f for f in (clone, fetch, commit, tag, push, refs)})
