package orchestrator

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/connector"
)

// lastChunks are ends of streams that carry KV transfer params, as vLLM 0.33 and later write them: in the
// chunk with the finish reason, and with the usage in the same chunk or after it.
func lastChunks(path string) map[string][]string {
	const params = `"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[1,2]],"remote_host":"h"}`
	const usage = `"usage":{"prompt_tokens":283,"completion_tokens":2,"total_tokens":285}`
	const head = `{"id":"x","created":1,"model":"sim","object":"x","choices":[`
	said := `{"index":0,"text":" a","finish_reason":null}`
	ended := `{"index":0,"text":" b","finish_reason":"length"}`
	if path == "/v1/chat/completions" {
		said = `{"index":0,"delta":{"content":" a"},"finish_reason":null}`
		ended = `{"index":0,"delta":{"content":" b"},"finish_reason":"length"}`
	}
	return map[string][]string{
		"no usage": {head + said + `]}`, head + ended + `],` + params + `}`, "[DONE]"},
		"usage behind": {
			head + said + `]}`, head + ended + `],` + params + `}`, head + `],` + usage + `}`,
			"[DONE]",
		},
		"usage in it": {head + said + `]}`, head + ended + `],` + usage + `,` + params + `}`, "[DONE]"},
		"params first": {
			head + said + `]}`, `{` + params + `,` + strings.TrimPrefix(head, "{") + ended + `]}`,
			"[DONE]",
		},
		"on both chunks": {
			head + said + `],` + params + `}`, head + ended + `],` + params + `,` + usage + `}`,
			"[DONE]",
		},
	}
}

// A client never gets the KV transfer params that an engine writes into the last chunk of a stream.
func TestLastChunksKeepTransferParams(t *testing.T) {
	usual := func(p prompt) prompt { return p }
	unasked := func(p prompt) prompt { // only the router asks for the usage
		p.body = strings.Replace(p.body, `"stream_options":{"include_usage":true},`, "", 1)
		return p
	}
	sampled := func(p prompt) prompt { // goes unchanged to one replica
		p.body = strings.Replace(p.body, `{`, `{"n":2,`, 1)
		return p
	}
	for how, change := range map[string]func(prompt) prompt{
		"split, usage asked": usual, "split, usage not asked": unasked, "whole": sampled,
	} {
		for _, p := range []prompt{chat(true), completion(true)} {
			for name, events := range lastChunks(p.path) {
				t.Run(how+"/"+p.path+"/"+name, func(t *testing.T) {
					in(t, setup{order: connector.Sequential}, func(w *world) {
						for _, d := range w.d {
							w.wire.scripted(d.addr, streamOf(events...))
						}
						got := w.ask(change(p))
						w.silent(got)
						if got.status != http.StatusOK || got.text != " a b" || got.finish != "length" || got.dones != 1 {
							t.Errorf("%d, text %q, finish %q: %s", got.status, got.text, got.finish, got.raw)
						}
					})
				})
			}
		}
	}
}
