package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// The event publisher of a prefill engine hangs, while the engine serves and the connection stays open.
// The replica's index becomes stale, and one WARN says what to do. The index is live again when the
// publisher is back.
func TestAMutePublisherIsNoticed(t *testing.T) {
	var log logged
	s := streams(setup{prefill: 1, decode: 1})
	inner := s.options
	s.options = func(o *Options) {
		inner(o)
		log.into(o)
	}
	w := newWorld(t, s)
	defer w.close()
	until(t, "all streams live", func() bool { return w.live() == 2 })
	asked := 0
	ask := func() {
		p := chat(false)
		p.body = strings.Replace(p.body, `"content":"`, fmt.Sprintf(`"content":"%d %s `, asked, words(100)), 1)
		asked++
		w.exact(p, w.ask(p))
	}
	for range 3 {
		ask()
	}
	fault := func(kind string) {
		if err := w.p[0].Fault(enginesim.Fault{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	fault("pause_events")
	for range 4 {
		ask()
	}
	// Five seconds without an event, then five seconds without an answer to the request for a replay.
	within(t, 40*time.Second, "its index is stale", func() bool { return w.live() == 1 })
	w.believes(w.p[0], "stale", "announced no block for ")
	const advice = "its event publisher is dead or hangs; restart the engine"
	if lines := log.lines("event stream", advice); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") {
		t.Errorf("the log has %q", lines)
	}
	fault("resume_events")
	until(t, "its index is live again", func() bool { return w.live() == 2 })
}

// believes checks a replica's trust and the state of its event stream.
func (w *world) believes(p *simulated, trust, stream string) {
	w.t.Helper()
	for _, s := range w.o.State().Status().Replicas {
		if s.Name != p.addr {
			continue
		}
		book, err := json.Marshal(s.Book)
		index := `"index":"` + trust + `"`
		if err != nil || !bytes.Contains(book, []byte(index)) || !strings.Contains(s.Events, stream) {
			w.t.Errorf("%s: %s, %s, %v, want %s and %s", p.name, s.Events, book, err, trust, stream)
		}
		return
	}
	w.t.Errorf("%s is not in the status", p.addr)
}
