#!/usr/bin/env bash
# Runs the benchmark program, which starts everything it measures; see its options
# with -h. Other work on the machine should rest meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

exec go run ./integration/bench "$@"
