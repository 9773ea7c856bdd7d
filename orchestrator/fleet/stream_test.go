package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
)

// learned returns the watcher of a prefill server and its pool. The server reported blocks of 16 tokens, and
// the configuration says 64.
func learned(t *testing.T, log *bytes.Buffer) (*Watcher, *prefill.Pool) {
	t.Helper()
	cfg := config.Default()
	cfg.Pools.Prefill.BlockSize = 64
	cfg.Pools.Prefill.Replicas = []config.Replica{{URL: "http://p0:8000"}, {URL: "http://p1:8000"}}
	f, p := fleetOf(t, cfg, log, func() {})
	for _, w := range f.Watchers() {
		if err := w.accept([]replica.Facts{{Model: "m", Models: []string{"m"}, BlockSize: 16}}); err != nil {
			t.Fatal(err)
		}
	}
	return f.Watchers()[0], p
}

// fleetOf returns a fleet whose watchers do not run, and its prefill pool. changed is called in each publish,
// under the fleet's mutex.
func fleetOf(t testing.TB, cfg *config.Config, log *bytes.Buffer, changed func()) (*Fleet, *prefill.Pool) {
	t.Helper()
	p, d := prefill.New(prefill.Options{}), decode.New(decode.Options{})
	p.Configure(prefill.Settings{LoadTTL: time.Second})
	logger := slog.New(slog.NewTextHandler(log, nil))
	f := New(Options{
		NoEvents: true, Prefill: p, Decode: d, Outliers: &outlier.Set{},
		Clock:  liveness.NewClock(time.Now()),
		Panics: panics.Guard{Log: logger}, Registry: prometheus.NewRegistry(),
		MembersChanged: func(replica.Renames, func(replica.ID) bool, []*Endpoint, []string) { changed() },
		RoomChanged:    func() {}, ForgetTokens: func(string) {},
	})
	if err := f.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	return f, p
}

// An engine reports a block size of 16, and its events have 32. The events are right, and one log line says
// so.
func TestBlockSizeIsThatOfEvents(t *testing.T) {
	var log bytes.Buffer
	w, pool := learned(t, &log)
	if got := pool.BlockSize(); got != 16 {
		t.Errorf("blocks of %d, want the engine's 16 before the file's 64", got)
	}
	s := newSink(&w.streams, &Stream{id: w.Members()[0].ID})
	batch := &kv.Batch{Events: []kv.Event{
		{Kind: kv.Stored, Hashes: []kv.EngineHash{5}, Group: 1, Tier: kv.CPU}, // a placeholder
		{
			Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2}, Tokens: make([]uint32, 64), BlockSize: 32,
			Group: kv.NoGroup,
		},
	}}
	for range 3 {
		s.Apply(batch)
	}
	if got := pool.BlockSize(); got != 32 {
		t.Errorf("blocks of %d, want 32", got)
	}
	text := log.String()
	if n := strings.Count(text, "the block size of the events is used"); n != 1 ||
		!strings.Contains(text, "told=32 expected=16") {
		t.Errorf("warned %d times:\n%s", n, text)
	}
	status := fmt.Sprintf("%+v", pool.Status(time.Now()))
	for _, want := range []string{
		"its events tell blocks of 32 tokens, where 16 were expected",
		"its blocks have 16 tokens, and prompts of its model are matched by 32: it never matches",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("the status does not say %q:\n%s", want, status)
		}
	}
}
