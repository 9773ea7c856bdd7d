# Sourced by the run.sh of each example: starts simulated engines and a router on free ports of the loopback, waits for things, and takes
# everything down again at the end, on a failure and on an interrupt. POSIX sh; needs curl, and build/tandem (or what TANDEM names).

set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$(cd "$(dirname "$0")" && pwd)
tandem=${TANDEM:-$root/build/tandem}
command -v curl >/dev/null 2>&1 || { echo "this example talks HTTP with curl, which is not installed here" >&2; exit 1; }
[ -x "$tandem" ] || { echo "there is no $tandem yet: run 'make build' first" >&2; exit 1; }

work=$(mktemp -d)
pids= # of everything started, the newest first

# finish ends the newest first, so that clients go before the router and the router before the engines, and returns when all have ended.
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
		echo "--- the end of the router's log:" >&2
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

# eventually WHAT COMMAND... tries the command until it succeeds, for ten seconds.
eventually() {
	what=$1
	shift
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || fail "ten seconds have passed and still not: $what"
		sleep 0.1
	done
}

# engine NAME [FLAG...] starts a simulated engine; its URL is then in $url_NAME.
engine() {
	name=$1
	shift
	"$tandem" sim --model demo --events 'tcp://127.0.0.1:0' "$@" >"$work/$name.out" 2>"$work/$name.err" &
	pids="$! $pids"
	eventually "the engine $name listens" grep -q '^http' "$work/$name.out"
	eval "url_$name=$(cut -d ' ' -f 1 "$work/$name.out")"
}

# router FILE starts the router with that configuration; $front and $admin are its URLs then. It is ready when every replica of the file is.
router() {
	"$tandem" serve --config "$1" --listen 127.0.0.1:0 --admin 127.0.0.1:0 >"$work/router.out" 2>"$work/router.log" &
	pids="$! $pids"
	eventually "the router listens" grep -q 'admin on' "$work/router.out"
	front=http://$(sed -n 's/^tandem serves on \([^,]*\),.*/\1/p' "$work/router.out")
	admin=http://$(sed -n 's/.*, admin on //p' "$work/router.out")
	eventually "every replica is ready" all_ready
}

all_ready() { get "$admin/readyz" >"$work/ready" && ! grep -q '"ready": false' "$work/ready"; }

# field NAME reads a member of the outer object of the indented JSON on standard input.
field() { sed -n -e 's/,$//' -e '/^  "'"$1"'": /{s/^[^:]*: //;s/^"//;s/"$//;p;}'; }

# metric NAME reads one sample of the router's metrics; NAME is written as there, labels included.
metric() { get "$admin/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
