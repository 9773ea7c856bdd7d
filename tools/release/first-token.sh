#!/bin/sh
# first-token.sh ROOT COMMAND...: does what a new user does after the installation in ROOT, and prints the seconds. It writes the addresses of two engines
# into ROOT/etc/tandem/tandem.yaml, runs COMMAND in ROOT as an unprivileged user, and repeats a streamed chat until its first token comes.
#
#   SINCE   the begin of the installation, as `date +%s%3N`
#   TANDEM  the binary that simulates the engines; they start before the installation, as real engines would
. "$(dirname "$0")/../../examples/lib.sh"
where=$1
shift
since=${SINCE:-$(date +%s%3N)}
passed() { awk -v from="$since" -v to="$(date +%s%3N)" 'BEGIN { printf "%6.1f s  ", (to - from) / 1000 }'; }

passed; echo "installed"
began=$(date +%s%3N)
engine p0
engine d0
since=$((since + $(date +%s%3N) - began))

sed -i -e "s|http://127.0.0.1:8101|$url_p0|" -e "s|http://127.0.0.1:8201|$url_d0|" "$where/etc/tandem/tandem.yaml"
grep -qF "$url_d0" "$where/etc/tandem/tandem.yaml" || fail "the shipped configuration does not have the expected engine addresses"
passed; echo "one file edited"

chroot --userspec=65532:65532 "$where" "$@" >"$work/router.log" 2>&1 &
pids="$! $pids"
router=$!
body='{"model":"demo","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"Hello"}]}'
until get -N http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d "$body" 2>/dev/null | grep -qm 1 '"content":"[^"]'; do
	kill -0 "$router" 2>/dev/null || fail "$* ended early"
	[ $(($(date +%s%3N) - since)) -lt 60000 ] || fail "no token came within a minute"
	sleep 0.1
done
passed; echo "the first token of an answer"
kill "$router"
wait "$router" || fail "$* ended with exit code $?"
