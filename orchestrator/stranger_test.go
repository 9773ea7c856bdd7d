package orchestrator

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// heapBytes is how many bytes the process holds.
func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools gave up in the first is free behind the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Nothing grows with what strangers send: ten thousand sessions, request ids and keys in a second, long names
// of models and fields. No metric gets a series of a stranger's making, and no log line gets long.
func TestNothingGrowsWithWhatStrangersSend(t *testing.T) {
	var log bytes.Buffer
	set := setup{
		config: func(c *config.Config) {
			c.Log.Access = true
			c.Decisions.Ring = 16
		},
		options: logsTo(&log),
	}
	in(t, set, func(w *world) {
		front := w.o.Front()
		ask := func(i int, method, path, body string) {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			id := fmt.Sprintf("%s-%d", strings.Repeat("s", 100), i)
			for _, name := range sessionHeaders {
				r.Header[name] = []string{id}
			}
			r.Header.Set("X-Request-Id", id)
			r.Header.Set("Authorization", "Bearer "+id)
			to := httptest.NewRecorder()
			front.ServeHTTP(to, r)
			_, _ = io.Copy(io.Discard, to.Body)
			w.asked++
		}
		play := func() {
			for i := range 10_000 {
				ask(i, http.MethodGet, "/v1/models", "")
			}
			long := strings.Repeat("m", 2<<20)
			for i := range 20 {
				ask(i, http.MethodPost, "/v1/chat/completions",
					`{"messages":[{"role":"user","content":"a"}],"model":"`+long+`"}`)
				ask(i, http.MethodPost, "/v1/chat/completions",
					`{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"`+long+`":1,"n":2}`)
				ask(i, http.MethodPost, "/inference/v1/generate", `{"token_ids":[1],"model":"`+long+`"}`)
				ask(i, http.MethodGet, "/v1/models/"+long[:50_000], "")
			}
		}
		settled := func() int64 {
			w.wire.forget()
			log = bytes.Buffer{}
			time.Sleep(30 * time.Second) // kept connections hold their last request for some seconds
			return heapBytes()
		}
		play()
		before := settled()
		play()
		if log.Len() == 0 {
			t.Error("the access log is empty: the test would see no long line")
		}
		for line := range strings.Lines(log.String()) {
			if len(line) > 4096 {
				t.Errorf("a log line of %d bytes: %.300s", len(line), line)
				break
			}
		}
		if n := len(w.get("admin", "/debug/decisions").raw); n > 1<<20 {
			t.Errorf("16 records have %d bytes", n)
		}
		if grown := settled() - before; grown > 1<<20 {
			t.Errorf("the router holds %d bytes more", grown)
		}
		if metrics := w.metrics(); strings.Contains(metrics, "sss") || strings.Contains(metrics, "mmm") {
			t.Error("a metric has a label of a stranger's making")
		}
	})
}

// A header value of a megabyte is refused before a request begins. A value that just fits into a head is no
// usable id of a session or a request: no engine gets the value, and nobody sees it.
func TestLongHeaderValuesGoNowhere(t *testing.T) {
	var log bytes.Buffer
	access := func(c *config.Config) { c.Log.Access = true }
	in(t, setup{config: access, options: logsTo(&log)}, func(w *world) {
		names := append([]string{
			"X-Request-Id", "Authorization", "Traceparent", "Origin", "X-Vllm-Priority", "User-Agent", "X-Other",
		}, sessionHeaders[:]...)
		for _, name := range names {
			huge := chat(false).inSession(http.Header{name: {strings.Repeat("h", 1<<20)}})
			got := w.send(w.t.Context(), "front:80", huge)
			if got.status != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s of a megabyte: status %d", name, got.status)
			}
			w.wire.forget()
			w.exact(chat(false), w.ask(chat(false).inSession(http.Header{name: {strings.Repeat("h", 60_000)}})))
			for _, leg := range w.posts(true) {
				for key, values := range leg.header {
					if len(values[0]) > 1000 {
						t.Errorf("%s got %s of %d bytes", leg.engine, key, len(values[0]))
					}
				}
			}
		}
		if strings.Contains(log.String()+w.get("admin", "/debug/decisions").raw, "hhhh") {
			t.Error("a long value is shown")
		}
	})
}
