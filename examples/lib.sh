# Functions for the run.sh of each example: they start simulated engines and a router on free ports of 127.0.0.1, and wait. At the end, on a failure
# and on an interrupt everything is stopped. POSIX sh. Needs curl and the binary build/tandem; TANDEM names another binary.

set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$(cd "$(dirname "$0")" && pwd)
tandem=${TANDEM:-$root/build/tandem}
command -v curl >/dev/null 2>&1 || { echo "this example needs curl: install it first" >&2; exit 1; }
[ -x "$tandem" ] || { echo "$tandem does not exist: run 'make build' first" >&2; exit 1; }

work=$(mktemp -d)
pids= # all started processes, the newest first

# finish stops all processes, the newest first: clients, then the router, then the engines. It exits when all have ended.
finish() {
	code=$?
	trap - EXIT
	trap '' INT TERM HUP
	for pid in $pids; do
		kill "$pid" 2>/dev/null || continue
		tries=0
		while kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do
			sleep 0.05
			tries=$((tries + 1))
		done
		kill -9 "$pid" 2>/dev/null || true
	done
	wait 2>/dev/null || true
	if [ "$code" -ne 0 ] && [ -s "$work/router.log" ]; then
		echo "--- last lines of the router's log:" >&2
		tail -n 20 "$work/router.log" >&2
	fi
	rm -rf "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
get() { curl -fsS --noproxy '*' --max-time 20 "$@"; }

# eventually WHAT COMMAND... repeats the command until it succeeds, for at most ten seconds.
eventually() {
	what=$1
	shift
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || fail "not within ten seconds: $what"
		sleep 0.1
	done
}

# engine NAME [FLAG...] starts a simulated engine and puts its URL into $url_NAME.
engine() {
	name=$1
	shift
	"$tandem" sim --model demo --events 'tcp://127.0.0.1:0' "$@" >"$work/$name.out" 2>"$work/$name.err" &
	pids="$! $pids"
	eventually "the engine $name listens" grep -q '^http' "$work/$name.out"
	eval "url_$name=$(cut -d ' ' -f 1 "$work/$name.out")"
}

# router FILE starts the router with this configuration, waits until every replica is ready, and puts its URLs into $front and $admin.
router() {
	"$tandem" serve --config "$1" --listen 127.0.0.1:0 --admin 127.0.0.1:0 >"$work/router.out" 2>"$work/router.log" &
	pids="$! $pids"
	eventually "the router listens" grep -q 'admin on' "$work/router.out"
	front=http://$(sed -n 's/^tandem serves on \([^,]*\),.*/\1/p' "$work/router.out")
	admin=http://$(sed -n 's/.*, admin on //p' "$work/router.out")
	eventually "every replica is ready" all_ready
}

all_ready() { get "$admin/readyz" >"$work/ready" && ! grep -q '"ready": false' "$work/ready"; }

# field NAME prints a top-level field of the indented JSON on standard input.
field() { sed -n -e 's/,$//' -e '/^  "'"$1"'": /{s/^[^:]*: //;s/^"//;s/"$//;p;}'; }

# metric NAME prints one sample of the router's metrics. NAME includes the labels, written as in /metrics.
metric() { get "$admin/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
