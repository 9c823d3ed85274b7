#!/usr/bin/env bash
# Everything that is tested, as CI runs it: set-up, lint, the rooms' tests, then
# the integration suite with the npm package's flow in it. Goes on after a failure,
# closes with a summary, and fails when anything failed.
#   HEADGATE_SEED      where random tests start; printed, so that a run can be repeated
#   HEADGATE_KILLS     how often the server is killed under load, per engine
#   HEADGATE_CUTS      at how many offsets a push is cut, per road; 50
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

export CI=${CI:-true}
export HEADGATE_SEED=${HEADGATE_SEED:-$(($(date +%s) * 1000 + RANDOM % 1000))}
echo "HEADGATE_SEED=$HEADGATE_SEED HEADGATE_KILLS=${HEADGATE_KILLS:-default}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
started=$SECONDS
passed=0 failed=0 summary=""

# step NAME COMMAND...: one line of the summary.
step() {
  local name=$1 from=$SECONDS verdict=ok
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    verdict=FAILED
  fi
  summary+=$(printf '%-24s %-7s %4ds' "$name" "$verdict" $((SECONDS - from)))$'\n'
}

# tests NAME GO-TEST-ARGS...: a step; the packages in it are counted instead of it.
tests() {
  local name=$1
  shift
  : >"$log"
  step "$name" run_go "$@"
  local ok bad
  ok=$(grep -c '^ok ' "$log")
  bad=$(grep -cE '^FAIL[[:space:]]+[^[:space:]]' "$log")
  if [ "$((ok + bad))" -gt 0 ]; then
    if [ "$bad" -gt 0 ]; then failed=$((failed - 1 + bad)); else passed=$((passed - 1)); fi
    passed=$((passed + ok))
  fi
}

run_go() { go test "$@" 2>&1 | tee "$log"; }

rooms() { go list ./... | grep -v '/integration'; }

step "set-up" bash integration/setup.sh
step "build" go build ./...
step "lint" bash integration/lint.sh
tests "rooms" -race -timeout 15m $(rooms)
# The program under test is built with -race in it; the tests themselves move
# gigabytes, which the detector would slow down tenfold.
tests "integration" -count=1 -timeout 30m ./integration/...

printf '\n%sin all %ds, HEADGATE_SEED=%s\n' "$summary" $((SECONDS - started)) "$HEADGATE_SEED"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
