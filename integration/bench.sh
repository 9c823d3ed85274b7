#!/usr/bin/env bash
# Runs every benchmark program below integration/bench, one after another: they
# must not share the cores.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in $(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./integration/bench/...); do
  echo "== $program"
  go run "$program" "$@"
done
