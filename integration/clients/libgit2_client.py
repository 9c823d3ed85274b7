"""libgit2 (pygit2) as a client; see driver.py."""

import os
import tempfile

import pygit2

from driver import serve, write

ADA = pygit2.Signature("Ada", "ada@example.com")


class Told(pygit2.RemoteCallbacks):
    """Keeps what the server refused of a push."""

    def __init__(self):
        super().__init__()
        self.refused = []

    def push_update_reference(self, refname, message):
        if message is not None:
            self.refused.append(f"{refname}: {message}")


def clone(url, dir, depth):
    if depth:
        raise NotImplementedError("this libgit2 knows no shallow clones")
    pygit2.clone_repository(url, dir)


def fetch(dir):
    pygit2.Repository(dir).remotes["origin"].fetch()


def commit(dir, path, text):
    repo = pygit2.Repository(dir)
    write(dir, path, text)
    repo.index.add(path)
    repo.index.write()
    parents = [] if repo.head_is_unborn else [repo.head.target]
    oid = repo.create_commit("HEAD", ADA, ADA, f"work on {path}\n", repo.index.write_tree(), parents)
    return {"oid": str(oid)}


def tag(dir, name, message):
    repo = pygit2.Repository(dir)
    if message:
        repo.create_tag(name, repo.head.target, pygit2.GIT_OBJ_COMMIT, ADA, message)
    else:
        repo.references.create(f"refs/tags/{name}", repo.head.target)


def push(dir, specs):
    repo = pygit2.Repository(dir)
    told = Told()
    repo.remotes["origin"].push(specs or [repo.head.name], callbacks=told)
    if told.refused:
        raise RuntimeError("; ".join(told.refused))


def refs(url):
    with tempfile.TemporaryDirectory() as dir:
        remote = pygit2.init_repository(dir, bare=True).remotes.create("origin", url)
        return {"refs": {ref["name"]: str(ref["oid"]) for ref in remote.ls_remotes()}}


if "GIT_SSL_CAINFO" in os.environ:
    pygit2.settings.set_ssl_cert_locations(os.environ["GIT_SSL_CAINFO"], None)
serve({f.__name__: f for f in (clone, fetch, commit, tag, push, refs)})
