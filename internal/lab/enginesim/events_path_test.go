package enginesim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// readsEvents opens the stream, from behind an event, and returns what reads the next ones, without their
// blank lines.
func readsEvents(t *testing.T, s *Server, after string) func(n int) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/v1/kv_events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", after)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d, %s: %s", resp.StatusCode, kind, text)
	}
	lines := bufio.NewReader(resp.Body)
	return func(n int) string {
		t.Helper()
		var all strings.Builder
		for n > 0 {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "\n" {
				n--
				continue
			}
			all.WriteString(line)
		}
		return all.String()
	}
}

// Each block of a batch is an event with an id of its own, and can be had again by it.
func TestEventsAreServedAtAPath(t *testing.T) {
	s, err := Start(Options{ZeroLatency: true, EventsPath: "/v1/kv_events"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	live := readsEvents(t, s, "")
	s.cores.ranks[0].send(&kvevents.EncodeBatch{Events: []kv.Event{
		{
			Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2}, Tokens: []kv.Token{7, 8, 9, 10}, BlockSize: 2, LoRA: `a"`,
			Salt: "s", Extra: [][]byte{nil, {0xe}},
		},
		{Kind: kv.Stored, Hashes: []kv.EngineHash{1}, Tokens: []kv.Token{7, 8}, BlockSize: 2},
		{Kind: kv.Removed, Hashes: []kv.EngineHash{2}},
		{Kind: kv.Cleared},
	}})
	want := `id: 0
event: cache_created
data: {"prefix_hash":"0000000000000001","token_count":2,"token_ids":[7,8],"lora_name":"a\"","cache_salt":"s"}
id: 1
event: cache_created
data: {"prefix_hash":"0000000000000002","parent_hash":"0000000000000001","token_count":2,"token_ids":[9,10],` +
		`"lora_name":"a\"","extra_keys":["0e"]}
id: 2
event: cache_created
data: {"prefix_hash":"0000000000000001","token_count":2,"token_ids":[7,8],"lora_name":""}
id: 3
event: cache_evicted
data: {"prefix_hash":"0000000000000002"}
`
	purged := func(id int) string {
		return fmt.Sprintf("id: %d\nevent: cache_purged\ndata: {\"prefix_hash\":\"0000000000000001\"}\n", id)
	}
	want += purged(4) + purged(5) // for each copy
	if got := live(6); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := readsEvents(t, s, "4")(1); got != purged(5) {
		t.Errorf("behind 4 comes\n%s", got)
	}
	if err := s.Fault(Fault{Kind: "drop_events", Count: 1}); err != nil {
		t.Fatal(err)
	}
	gone := &kvevents.EncodeBatch{Events: []kv.Event{{Kind: kv.Removed, Hashes: []kv.EngineHash{3}}}}
	s.cores.ranks[0].send(gone) // to nobody
	s.cores.ranks[0].send(gone)
	if got := live(1); !strings.HasPrefix(got, "id: 7\n") {
		t.Errorf("behind a lost batch comes\n%s", got)
	}
}
