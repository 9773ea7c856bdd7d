#!/bin/sh
# Changes the configuration four times while a stream runs: other weights, other replicas, a bad file, a good file again. See README.md.
. "$(dirname "$0")/../lib.sh"

# use NAME puts the real ports into configs/NAME.yaml and replaces the file that the router watches.
use() {
	sed -e "s|http://127.0.0.1:8101|$url_p1|" -e "s|http://127.0.0.1:8201|$url_d1|" -e "s|http://127.0.0.1:8202|$url_d2|" \
		"$here/configs/$1.yaml" >"$work/new.yaml"
	mv "$work/new.yaml" "$work/tandem.yaml"
}

applied() { metric 'tandem_config_reloads_total{result="applied"}'; }
applied_is() { [ "$(applied)" = "$1" ]; }
in_pools() { get "$admin/readyz" | sed -n 's/.*"replica": "\(.*\)",.*/\1/p' | tr '\n' ' '; }
pools_are() { [ "$(in_pools)" = "$1" ] && all_ready; }
events() { grep -c '^data: {' "$work/stream" || true; }
streaming() { [ "$(events)" -gt "$1" ]; }

# ask sends a short question and prints the decode replica that answered.
ask() {
	get -D "$work/head" "$front/v1/completions" -H 'Content-Type: application/json' -d '{"model":"demo","prompt":"A short question","max_tokens":4}' >"$work/answer"
	id=$(sed -n 's/^[Xx]-[Rr]equest-[Ii]d: \([0-9a-f]*\).*/\1/p' "$work/head")
	get "$admin/debug/decisions/$id" | field decode
}

step "start engines p1, d1 and d2, and a router with p1 and d1"
engine p1; engine d1; engine d2
use 1-start
router "$work/tandem.yaml"
echo "in the pools: $(in_pools)"

step "a stream of 1,500 tokens begins on d1"
tokens=1500
# Not with get: $! must be the process of curl, because finish stops it.
curl -fsSN --noproxy '*' --max-time 60 "$front/v1/completions" -H 'Content-Type: application/json' \
	-d '{"model":"demo","prompt":"Tell a long story","max_tokens":'$tokens',"ignore_eos":true,"stream":true}' >"$work/stream" 2>"$work/stream.err" &
stream=$!
pids="$stream $pids"
eventually "the stream has begun" streaming 5

step "other weights"
"$tandem" check "$here/configs/2-weights.yaml" --against "$here/configs/1-start.yaml" | sed -n '/^changes/,$p'
before=$(applied)
use 2-weights
eventually "the weights are in force" applied_is $((before + 1))
get "$admin/-/config" | grep -A 4 '^scoring:'
get "$admin/-/config" | grep -q 'gamma: 3' || fail "gamma is not 3"

step "replace d1 by d2"
use 3-swap
eventually "d2 is in the pools and d1 is not" pools_are "p1 d2 "
echo "in the pools: $(in_pools)"
at=$(ask)
echo "a new request went to $at"
[ "$at" = d2 ] || fail "a new request went to $at, want d2"
kill -0 $stream 2>/dev/null || fail "the stream ended before the last change of the configuration"
so_far=$(events)
eventually "the stream goes on" streaming "$so_far"
echo "the stream on d1 goes on: $(events) events"

step "a bad file"
before=$(applied)
use 4-bad
# The router also sees the new file by itself. A reload request returns the result at once.
code=$(curl -sS --noproxy '*' --max-time 20 -o "$work/reload" -w '%{http_code}' -X POST "$admin/-/reload")
[ "$code" = 400 ] || fail "POST /-/reload answered $code, want 400"
"$tandem" check "$work/tandem.yaml" >"$work/check" 2>/dev/null && fail "tandem check accepted the bad file"
sed "s|$work/||" "$work/check"
for said in "10:3: scoring.alhpa: is not a field" "timeouts.queue: has no unit" "connector.margin: 45s is not below connector.lease"; do
	grep -qF "$said" "$work/reload" || fail "the error message lacks: $said"
done
[ "$(metric tandem_config_last_reload_successful)" = 0 ] || fail "tandem_config_last_reload_successful is not 0 after a rejected file"
get "$admin/readyz" >"$work/ready"
grep -q '"ready": true' "$work/ready" && grep -q 'alhpa' "$work/ready" || fail "/readyz must say both: the router is ready, and the file was rejected"
get "$admin/-/config" | grep -q 'gamma: 3' || fail "the configuration in force has changed"
[ "$(applied)" = "$before" ] || fail "a configuration was applied"
at=$(ask)
[ "$at" = d2 ] || fail "a request went to $at, want d2"
echo "nothing has changed: gamma is still 3, and a new request went to $at"

step "a good file again: d1 is back"
use 1-start
eventually "the pools are as at the beginning" pools_are "p1 d1 "
[ "$(metric tandem_config_last_reload_successful)" = 1 ] || fail "tandem_config_last_reload_successful is not 1 after a good file"
echo "in the pools: $(in_pools)"

step "the stream survived all changes"
kill -0 $stream 2>/dev/null || fail "the stream ended before the last change of the configuration"
wait $stream || fail "the stream broke off: $(cat "$work/stream.err")"
[ "$(events)" = $tokens ] || fail "the stream has $(events) events, want $tokens"
grep -q '^data: \[DONE\]' "$work/stream" || fail "the stream did not end with [DONE]"
echo "$(events) events and [DONE]: none was lost"

step "done"
