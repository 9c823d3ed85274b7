#!/bin/sh
# Starts a Redis and two headgate nodes on it, with one data folder for both, and says
# how to use them. Everything ends with the script (Ctrl-C); the data stays in DIR and
# is used again the next time.
#
#   integration/two-nodes.sh [DIR]            DIR: ./headgate-two-nodes
#
# Needs redis-server, curl, and go or a built program. Settings from the environment:
#   HEADGATE     the program; empty: it is built
#   REDIS_PORT   6390
#   PORT_A, PORT_B   8081, 8082
set -eu

dir=${1:-./headgate-two-nodes}
redis_port=${REDIS_PORT:-6390} port_a=${PORT_A:-8081} port_b=${PORT_B:-8082}

mkdir -p "$dir/redis"
dir=$(cd "$dir" && pwd)
headgate=${HEADGATE:-}
if [ -z "$headgate" ]; then
	headgate=$dir/headgate
	(cd "$(dirname "$0")/.." && go build -o "$headgate" ./cmd/headgate)
fi

# The nodes end before the Redis that they need.
redis='' nodes=''
end() {
	trap - EXIT INT TERM
	for pid in $nodes; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
	[ -z "$redis" ] || { kill "$redis" 2>/dev/null && wait "$redis" || true; }
}
trap end EXIT
trap 'exit 0' INT TERM

# until_ok COMMAND...: waits until the command succeeds, half a minute at most.
until_ok() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || { echo "not within 30 s: $*; see $dir/*.log" >&2; exit 1; }
		sleep 0.1
	done
}

# Each write is on disk before it is answered, and nothing is ever evicted: this is what
# makes "committed" true.
redis-server --bind 127.0.0.1 --port "$redis_port" --dir "$dir/redis" \
	--appendonly yes --appendfsync always --save '' --maxmemory-policy noeviction >"$dir/redis.log" 2>&1 &
redis=$!
until_ok redis-cli -p "$redis_port" ping

# One key pair of the org "acme": its backends sign tokens with it, the nodes check them.
[ -e "$dir/keys/acme.key.pem" ] || "$headgate" keygen --org acme --out "$dir/keys" >/dev/null

# Any number of nodes like these: the same ledger, the same folder, the same orgs.
node() {
	"$headgate" serve --listen "127.0.0.1:$2" --data "$dir/data" --ledger "redis://127.0.0.1:$redis_port/0" \
		--trust "acme=$dir/keys/acme.pub.pem" >"$dir/node-$1.log" 2>&1 &
	nodes="$nodes $!"
	until_ok curl -fs "http://127.0.0.1:$2/readyz"
}
node a "$port_a"
node b "$port_b"

cat <<TEXT
Two nodes on one Redis are ready: http://127.0.0.1:$port_a and http://127.0.0.1:$port_b
Logs and data are in $dir. Ctrl-C ends all three.

Try it: make a repository on one node, push to it there, clone it from the other.

    TOKEN=\$($headgate token --key $dir/keys/acme.key.pem --org acme --repo team/site --scope repo:write --scope git:read --scope git:write)
    curl -fsS -X POST -H "Authorization: Bearer \$TOKEN" -H 'Content-Type: application/json' -d '{"default_branch":"main"}' http://127.0.0.1:$port_a/api/v1/repos
    git init -q -b main site && cd site && git -c user.name=Ada -c user.email=ada@example.com commit -q --allow-empty -m first
    git push -q http://t:\$TOKEN@127.0.0.1:$port_a/team/site.git main
    git clone -q http://t:\$TOKEN@127.0.0.1:$port_b/team/site.git copy && git -C copy log --oneline
TEXT

# Until Ctrl-C, or until one of the three ends by itself.
while kill -0 "$redis" 2>/dev/null; do
	for pid in $nodes; do
		kill -0 "$pid" 2>/dev/null || { echo "a node ended; see $dir/node-*.log" >&2; exit 1; }
	done
	sleep 1 &
	wait $! || true
done
echo "redis ended; see $dir/redis.log" >&2
exit 1
