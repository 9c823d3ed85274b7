#!/usr/bin/env bash
# gofmt, go vet and staticcheck over every package. Prints nothing when all is well.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

status=0
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l) || status=1
if [ -n "$unformatted" ]; then
  printf 'gofmt would change:\n%s\n' "$unformatted"
  status=1
fi
go vet ./... || status=1
go tool staticcheck ./... || status=1
exit "$status"
