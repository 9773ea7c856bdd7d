#!/bin/sh
# Sends a streamed chat to simulated engines and shows where it went and why. Then sends the next turn, and plans it once more as a dry run. See README.md.
. "$(dirname "$0")/../lib.sh"

step "start two prefill engines, two decode engines and the router"
engine p1; engine p2; engine d1; engine d2
sed -e "s|http://127.0.0.1:8101|$url_p1|" -e "s|http://127.0.0.1:8102|$url_p2|" \
	-e "s|http://127.0.0.1:8201|$url_d1|" -e "s|http://127.0.0.1:8202|$url_d2|" "$here/tandem.yaml" >"$work/tandem.yaml"
"$tandem" check "$work/tandem.yaml"
router "$work/tandem.yaml"
echo "router $front, admin $admin"

# A system prompt of about 1,500 tokens.
manual=$(awk 'BEGIN { for (i = 1; i <= 50; i++) printf "Paragraph %d of a long manual says this. ", i }')

# chat FILE sends the messages of FILE. It writes the stream to $work/stream and the response headers to $work/head.
chat() {
	printf '{"model":"demo","stream":true,"stream_options":{"include_usage":true},"max_tokens":12,"messages":[%s]}' "$(cat "$1")" >"$work/body"
	get -N -D "$work/head" "$front/v1/chat/completions" -H 'Content-Type: application/json' -d "@$work/body" >"$work/stream"
	grep -q '^data: \[DONE\]' "$work/stream" || fail "the stream did not end with [DONE]"
	id=$(sed -n 's/^[Xx]-[Rr]equest-[Ii]d: \([0-9a-f]*\).*/\1/p' "$work/head")
	answer=$(sed -n 's/.*"delta":{"content":"\([^"]*\)".*/\1/p' "$work/stream" | tr -d '\n')
	get "$admin/debug/decisions/$id" >"$work/decision"
	outcome=$(field outcome <"$work/decision")
	mode=$(field mode <"$work/decision")
	prefill=$(field prefill <"$work/decision")
	[ "$outcome" = ok ] && [ "$mode" = split ] || fail "the request ended as $outcome, placed as $mode; want ok and split"
}

tell() {
	echo "answer   $answer"
	echo "placed   $mode: prefill on $prefill, decode on $(field decode <"$work/decision")"
	echo "why      $(field reason <"$work/decision")"
	echo "prompt   $(field prompt_tokens <"$work/decision") tokens; in $prefill's cache: $(field captured_tokens <"$work/decision") predicted, $(field delivered_tokens <"$work/decision") found"
	echo "phases   ms: $(sed -n '/"phases_ms"/,/}/p' "$work/decision" | sed '1d;$d' | tr -d ' \n"' | tr ',' ' ')"
}

step "a streamed chat, the first and the last events"
printf '{"role":"system","content":"%s"},{"role":"user","content":"What does it say?"}' "$manual" >"$work/turn1"
chat "$work/turn1"
sed -n '1,3p' "$work/stream"
echo "..."
tail -n 4 "$work/stream"

step "its decision, from $admin/debug/decisions/$id"
tell
first=$prefill

step "the next turn: the same beginning, so the same prefill replica has most of it"
printf '%s,{"role":"assistant","content":"%s"},{"role":"user","content":"And then?"}' "$(cat "$work/turn1")" "$answer" >"$work/turn2"
chat "$work/turn2"
tell
captured=$(field captured_tokens <"$work/decision")
delivered=$(field delivered_tokens <"$work/decision")
[ "$prefill" = "$first" ] || fail "the next turn was prefilled on $prefill, its beginning is on $first"
[ "$captured" -gt 1400 ] || fail "only $captured tokens were expected in the cache"
[ "$captured" = "$delivered" ] || fail "the engine found $delivered cached tokens where $captured were predicted"

step "a dry run of the same body: every plan and what it would cost, nothing sent"
before=$(metric 'tandem_requests_total{mode="split",model="demo",outcome="ok",path="/v1/chat/completions"}')
get "$admin/debug/explain" -d "@$work/body" >"$work/explain"
echo "why      $(field reason <"$work/explain")"
echo "plans    prefill decode     total ms"
awk '/^    {/ { p = "-" } /^      "prefill":/ { p = $2 } /^      "decode":/ { d = $2 } /^      "total":/ { printf "         %s %s %.1f\n", p, d, $2 }' "$work/explain" |
	tr -d '",' | awk '{ printf "         %-7s %-7s %11s\n", $1, $2, $3 }'
after=$(metric 'tandem_requests_total{mode="split",model="demo",outcome="ok",path="/v1/chat/completions"}')
[ "$before" = 2 ] && [ "$after" = 2 ] || fail "the dry run was counted as a request: $before before, $after after"
grep -q '"prefill": "'"$first"'"' "$work/explain" || fail "the dry run does not choose $first"

echo "as it came: nothing was booked or sent"
step "done"
