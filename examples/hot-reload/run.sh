#!/bin/sh
# The configuration is changed four times under a running stream: weights, members, a bad file, good again. See README.md beside this file.
. "$(dirname "$0")/../lib.sh"

# use NAME writes configs/NAME.yaml with the real ports, and moves it over the file that the router watches.
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

# ask sends a short question and tells which decode replica answered it.
ask() {
	get -D "$work/head" "$front/v1/completions" -H 'Content-Type: application/json' -d '{"model":"demo","prompt":"A short question","max_tokens":4}' >"$work/answer"
	id=$(sed -n 's/^[Xx]-[Rr]equest-[Ii]d: \([0-9a-f]*\).*/\1/p' "$work/head")
	get "$admin/debug/decisions/$id" | field decode
}

step "engines p1, d1 and d2, and a router that knows p1 and d1"
engine p1; engine d1; engine d2
use 1-start
router "$work/tandem.yaml"
echo "in the pools: $(in_pools)"

step "a stream of 1,500 tokens begins on d1"
tokens=1500
# Not through get: the process that is stopped at the end must be curl itself.
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

step "d2 comes, d1 goes"
use 3-swap
eventually "d2 is in the pools and d1 is not" pools_are "p1 d2 "
echo "in the pools: $(in_pools)"
at=$(ask)
echo "a new request went to $at"
[ "$at" = d2 ] || fail "a new request went to $at, want d2"
kill -0 $stream 2>/dev/null || fail "the stream has ended: it was to run through all of this"
so_far=$(events)
eventually "the stream goes on" streaming "$so_far"
echo "the stream on d1 goes on: $(events) events"

step "a bad file"
before=$(applied)
use 4-bad
# The watcher sees it by itself; asking for a reload gives its answer at once.
code=$(curl -sS --noproxy '*' --max-time 20 -o "$work/reload" -w '%{http_code}' -X POST "$admin/-/reload")
[ "$code" = 400 ] || fail "POST /-/reload answered $code, want 400"
"$tandem" check "$work/tandem.yaml" >"$work/check" 2>/dev/null && fail "tandem check took the bad file"
sed "s|$work/||" "$work/check"
for said in "10:3: scoring.alhpa: is not a field" "timeouts.queue: has no unit" "connector.margin: 45s is not below connector.lease"; do
	grep -qF "$said" "$work/reload" || fail "the refusal does not say: $said"
done
[ "$(metric tandem_config_last_reload_successful)" = 0 ] || fail "the metric does not show the rejected file"
get "$admin/readyz" >"$work/ready"
grep -q '"ready": true' "$work/ready" && grep -q 'alhpa' "$work/ready" || fail "/readyz does not tell both: ready, and a file rejected"
get "$admin/-/config" | grep -q 'gamma: 3' || fail "the configuration in force has changed"
[ "$(applied)" = "$before" ] || fail "something has been applied"
at=$(ask)
[ "$at" = d2 ] || fail "a request went to $at, want d2"
echo "nothing has changed: gamma is 3 still, and a request went to $at"

step "good again: d1 is back"
use 1-start
eventually "the pools are those of the beginning" pools_are "p1 d1 "
[ "$(metric tandem_config_last_reload_successful)" = 1 ] || fail "the metric still shows a rejected file"
echo "in the pools: $(in_pools)"

step "the stream has run through all of it"
kill -0 $stream 2>/dev/null || fail "the stream ended too early to show anything"
wait $stream || fail "the stream broke off: $(cat "$work/stream.err")"
[ "$(events)" = $tokens ] || fail "the stream has $(events) events, want $tokens"
grep -q '^data: \[DONE\]' "$work/stream" || fail "the stream did not end with [DONE]"
echo "$(events) events and [DONE], not one lost"

step "done"
