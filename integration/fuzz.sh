#!/usr/bin/env bash
# Runs every fuzz target of the packages given (default: all), one after another.
#   integration/fuzz.sh [TIME] [PACKAGES...]
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
shift || true
for package in $(go list "${@:-./...}"); do
  for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
    echo "== $package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done
