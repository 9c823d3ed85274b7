"""A git library of Python as the tests drive it: one request a line on standard
input, one answer a line on standard output, both JSON. What went wrong is the
answer's "error"; the process ends with its input."""

import json
import sys


def serve(operations):
    """Answers requests until there are no more. operations: name to function."""
    for line in sys.stdin:
        request = json.loads(line)
        do = operations[request.pop("do")]
        try:
            answer = do(**request) or {}
        except Exception as err:
            answer = {"error": f"{type(err).__name__}: {err}"}
        print(json.dumps(answer), flush=True)


def write(dir, path, text):
    with open(f"{dir}/{path}", "w", encoding="utf-8") as f:
        f.write(text)
