#!/usr/bin/env bash
# Installs what the tests need and is not there: Debian packages by apt-get, and
# the npm packages of integration/node at the versions of its lock file. Quick
# when all is there. What cannot be installed is an error: no test is skipped.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
  echo "setup: $*" >&2
  exit 1
}

command -v go >/dev/null || fail "Go is not installed (its version stands in go.mod)"

# Program or file, and the package that brings it.
missing=()
while read -r what package; do
  case "$what" in
    /*) [ -e "$what" ] || missing+=("$package") ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null || missing+=("$package") ;;
  esac
done <<'LIST'
git git
gcc gcc
redis-server redis-server
redis-cli redis-tools
nginx nginx-light
fcgiwrap fcgiwrap
gpg gnupg
restic restic
gcore gdb
ssh-keygen openssh-client
node nodejs
npm npm
/usr/bin/python3 python3
/usr/lib/python3/dist-packages/pygit2/__init__.py python3-pygit2
/usr/lib/python3/dist-packages/dulwich/__init__.py python3-dulwich
jgit jgit-cli
javac default-jdk-headless
/etc/ssl/certs/ca-certificates.crt ca-certificates
LIST

if [ "${#missing[@]}" -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "missing ${missing[*]}, and only root can install them"
    sudo=(sudo)
  fi
  # A package may start its service; the tests start their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod +x "$policy"
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
  fi
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

version=$(git version | sed -E 's/^git version ([0-9]+)\.([0-9]+).*/\1 \2/')
read -r major minor <<<"$version"
[ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 38 ]; } ||
  fail "git is older than 2.38: $(git version)"

# npm ci starts anew each time, so it runs only when the lock file has changed.
cd node
if ! cmp -s package-lock.json node_modules/.installed; then
  npm ci --no-fund --no-audit --loglevel=error
  cp package-lock.json node_modules/.installed
fi
