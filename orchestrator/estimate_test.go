package orchestrator

import (
	"net/http"
	"strings"
	"testing"
)

// The bytes of a request say little about the length of its prompt: an image has a fixed number of tokens,
// and an embedding request has many short prompts. So a large body alone is no reason to refuse a request:
// the engine's own answer counts.
func TestBytesRefuseNothing(t *testing.T) {
	long := strings.Repeat(words(100)+`","`, 300) + `a`
	data := strings.Repeat("QUJD", 75<<10)
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" + data +
		"\r\n--b--\r\n"
	in(t, setup{}, func(w *world) {
		for name, p := range map[string]prompt{
			"an image": post("/v1/chat/completions",
				`{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":[{"type":"image_url",`+
					`"image_url":{"url":"data:image/png;base64,`+data+`"}}]}]}`),
			"more prompts than we split": post("/v1/completions",
				`{"model":"sim","max_tokens":1,"temperature":0,"prompt":["`+long+`"]}`),
			"embeddings": post("/v1/embeddings", `{"model":"sim","input":["`+long+`"]}`),
			"a recording": {
				path: "/v1/audio/transcriptions", body: form,
				header: http.Header{"Content-Type": {`multipart/form-data; boundary=b`}},
			},
		} {
			got, want := w.ask(p), w.right(p)
			if got.status != want.status || got.text != want.text {
				t.Errorf("%s: %d %.200s, want the engine's %d %.200s",
					name, got.status, got.raw, want.status, want.raw)
			}
			if got.took > want.took+decodeStep { // it may miss a step by a moment, but it must not wait for room
				t.Errorf("%s: answered in %v, but the engine alone takes %v", name, got.took, want.took)
			}
		}
	})
}
