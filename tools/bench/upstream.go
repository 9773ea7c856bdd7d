package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// upstream plays an engine that costs almost nothing. It counts the prompt's tokens and sends vLLM's fixed
// answers to both legs, with one write per event of a stream. Like an engine it reports a repeated prompt as
// cached: a router that expects this and gets another report discards its index of the engine.
type upstream struct {
	asked    sync.Map // hashes of prompts
	requests atomic.Int64
	prefills atomic.Int64
}

// serve answers on ln until ctx ends.
func (u *upstream) serve(ctx context.Context, ln net.Listener) {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { nc.Close() })()
			defer nc.Close()
			c := &exchange{u: u, nc: nc, r: bufio.NewReaderSize(nc, 256<<10)}
			for c.answer() == nil {
			}
		})
	}
}

// exchange is one connection's state.
type exchange struct {
	u    *upstream
	nc   net.Conn
	r    *bufio.Reader
	id   string // X-Request-Id; ids of answers end with it, as in vLLM
	body []byte
	out  []byte
}

func (e *exchange) answer() error {
	path, err := e.readRequest()
	if err != nil {
		return err
	}
	e.out = e.out[:0]
	switch path {
	case "/v1/completions", "/v1/chat/completions":
		return e.complete()
	case "/health":
		return e.reply("")
	case "/version":
		return e.reply(`{"version":"0.32.0"}`)
	case "/v1/models":
		return e.reply(fmt.Sprintf(`{"object":"list","data":[{"id":%q,"object":"model","created":1,`+
			`"owned_by":"vllm","root":%q,"parent":null,"max_model_len":131072}]}`, model, model))
	case "/kv_event_sources":
		return e.reply(`{}`)
	case "/metrics":
		return e.reply(fmt.Sprintf(upstreamMetrics, e.u.requests.Load(), e.u.prefills.Load()))
	}
	e.out = append(e.out, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 22\r\n"+
		"\r\n{\"detail\":\"Not Found\"}"...)
	return e.flush()
}

const upstreamMetrics = `process_start_time_seconds 1795242098.61
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} %d
bench_prefills_total %d
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="1600000",num_gpu_blocks="100000"} 1.0
`

// readRequest reads one request; its body is in e.body until the next.
func (e *exchange) readRequest() (path string, err error) {
	length := 0
	e.id = ""
	for first := true; ; first = false {
		line, err := e.r.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		if first {
			fields := bytes.Fields(line)
			if len(fields) != 3 {
				return "", errors.New("no request line")
			}
			path = string(fields[1])
			continue
		}
		if len(line) <= 2 {
			break
		}
		switch key, value, _ := bytes.Cut(line, []byte(":")); {
		case bytes.EqualFold(key, []byte("content-length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", err
			}
		case bytes.EqualFold(key, []byte("x-request-id")):
			e.id = string(bytes.TrimSpace(value))
		}
	}
	if e.body, err = e.r.Peek(length); err != nil {
		return "", err
	}
	_, err = e.r.Discard(length)
	return path, err
}

func (e *exchange) reply(body string) error {
	e.out = fmt.Appendf(e.out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
		"endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=0.0, "+
		"named_metrics.kv_cache_usage_perc=0.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return e.flush()
}

func (e *exchange) flush() error {
	_, err := e.nc.Write(e.out)
	return err
}

// complete answers either leg.
func (e *exchange) complete() error {
	tokens, maxTokens := countPrompt(e.body), numberBehind(e.body, `"max_tokens":`, 16)
	e.u.requests.Add(1)
	if bytes.Contains(e.body, []byte(`"stream":true`)) || bytes.Contains(e.body, []byte(`"stream": true`)) {
		ids := bytes.Contains(e.body, []byte(`"return_token_ids":true`))
		return e.stream(maxTokens, tokens, ids)
	}
	params := "null"
	if bytes.Contains(e.body, []byte(`"do_remote_decode":true`)) ||
		bytes.Contains(e.body, []byte(`"do_remote_decode": true`)) {
		e.u.prefills.Add(1)
		params = transferParams(tokens, e.u.cached(e.body, tokens))
	}
	return e.reply(fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","created":1795242161,"model":%q,`+
		`"choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":"length",`+
		`"stop_reason":null}],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,`+
		`"prompt_tokens_details":null},"kv_transfer_params":%s}`,
		e.id, model, tokens, tokens+maxTokens, maxTokens, params))
}

// cached is the number of prompt tokens that the engine has cached from an earlier request: whole blocks.
func (u *upstream) cached(body []byte, tokens int) int {
	_, prompt, _ := bytes.Cut(body, []byte(`"prompt":`))
	prompt, _, _ = bytes.Cut(prompt, []byte{']'})
	if _, before := u.asked.LoadOrStore(maphash.Bytes(seed, prompt), true); before {
		return (tokens - 1) / 16 * 16
	}
	return 0
}

var seed = maphash.MakeSeed()

// transferParams are the KV transfer params of a NIXL prefill replica for a prompt of tokens tokens. cached
// is the number of tokens from its prefix cache.
func transferParams(tokens, cached int) string {
	blocks := make([]byte, 0, 256)
	for i := range (tokens + 15) / 16 {
		if i > 0 {
			blocks = append(blocks, ',')
		}
		blocks = strconv.AppendInt(blocks, int64(100+i), 10)
	}
	return fmt.Sprintf(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[%s]],`+
		`"remote_engine_id":"6df2bc3d-18dc-41d5-9b1e-baf285660f54",`+
		`"remote_request_id":"cmpl-1-0-ae346bc9","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,`+
		`"dcp_size":1,"pp_size":1,"remote_num_tokens":%d,`+
		`"remote_blocks_expiry_time":null,"transfer_mode":"pull",`+
		`"remote_prefill_cached_tokens":%d}`, blocks, tokens, cached)
}

const event = `data: {"id":"cmpl-%s","object":"text_completion","created":1795242161,"model":"m",` +
	`"choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null,"stop_reason":null}]}` + "\n\n"

// If a request asks for token ids, the first event has the prompt's ids, and every event has its own id.
const (
	firstWithIDs = `data: {"id":"cmpl-%s","object":"text_completion","created":1795242161,"model":"m",` +
		`"choices":[{"index":0,"text":" token",` +
		`"logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[4242],"prompt_logprobs":null,` +
		`"prompt_token_ids":[17%s]}]}` + "\n\n"
	eventWithIDs = `data: {"id":"cmpl-%s","object":"text_completion","created":1795242161,"model":"m",` +
		`"choices":[{"index":0,"text":" token",` +
		`"logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[4242],"prompt_logprobs":null,` +
		`"prompt_token_ids":null}]}` + "\n\n"
)

// stream writes n events and the end. Each has its own write, as from an engine that makes one token per
// step. ids means that the request asked for token ids; prompt is the number of prompt tokens.
func (e *exchange) stream(n, prompt int, ids bool) error {
	event := fmt.Sprintf(event, e.id)
	first := event
	if ids {
		first = fmt.Sprintf(firstWithIDs, e.id, strings.Repeat(",4711", prompt-1))
		event = fmt.Sprintf(eventWithIDs, e.id)
	}
	e.out = append(e.out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n"...)
	for i := range n {
		said := event
		if i == 0 {
			said = first
		}
		e.out = fmt.Appendf(e.out, "%x\r\n%s\r\n", len(said), said)
		if err := e.flush(); err != nil {
			return err
		}
		e.out = e.out[:0]
	}
	e.out = append(e.out, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"...)
	return e.flush()
}

// countPrompt counts the token ids of the prompt. The result is 1 if the prompt is text.
func countPrompt(body []byte) int {
	_, rest, ok := bytes.Cut(body, []byte(`"prompt":`))
	rest = bytes.TrimLeft(rest, " ")
	if !ok || len(rest) == 0 || rest[0] != '[' {
		return 1
	}
	end := bytes.IndexByte(rest, ']')
	return bytes.Count(rest[:max(end, 0)], []byte{','}) + 1
}

func numberBehind(body []byte, key string, otherwise int) int {
	_, rest, ok := bytes.Cut(body, []byte(key))
	rest = bytes.TrimLeft(rest, " ")
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(string(rest[:n]))
	if !ok || err != nil {
		return otherwise
	}
	return v
}
