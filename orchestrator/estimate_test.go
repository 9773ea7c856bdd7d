package orchestrator

import (
	"net/http"
	"strings"
	"testing"
)

// The bytes of a request say little of how long its prompt is: an image has some tokens whatever its bytes,
// and the many inputs of an embedding are as many prompts. Such requests get what an engine says to them.
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
				t.Errorf("%s: %d %.200s, and the engine itself %d %.200s",
					name, got.status, got.raw, want.status, want.raw)
			}
			if got.took > want.took+decodeStep { // it may come a moment too late for a step, and waits for no room
				t.Errorf("%s: answered in %v, the engine itself takes %v", name, got.took, want.took)
			}
		}
	})
}
