#!/usr/bin/env bash
# Runs the benchmark program; its flags are taken as they are.
#   integration/bench.sh [-only commit,diff] [-short]
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./integration/bench "$@"
