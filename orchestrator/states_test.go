package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// A state that is set on a replica is shown in the metrics and in the status.
func TestStateIsShownWithItsCause(t *testing.T) {
	in(t, setup{}, func(w *world) {
		id := replica.ID(w.d[1].addr)
		slow := w.o.fleet.Endpoint(id)
		slow.SetState(id, fleet.StateSlow, "it has a cold")
		if n := w.count("tandem_replica_state", w.d[1].addr); n != 1 {
			t.Errorf("%d series of %s are 1, want one", n, id)
		}
		if n := w.count("tandem_replica_state", ""); n != 1 {
			t.Errorf("%d series are 1, want one", n)
		}
		shown, err := json.Marshal(w.o.State().Status())
		if err != nil || strings.Count(string(shown), `"state":"slow","cause":"it has a cold"`) != 1 {
			t.Errorf("/debug/replicas: %v, %s", err, shown)
		}
		slow.SetState(id, fleet.StateSlow, "")
		if n := w.count("tandem_replica_state", ""); n != 0 {
			t.Errorf("%d series are 1 after the state has ended", n)
		}
	})
}

// A decode replica that is twenty times slower than the other gets almost no requests. It is shown as
// slow: in its state, in the metrics, and in one log line.
func TestASlowReplicaIsSeen(t *testing.T) {
	var log bytes.Buffer
	in(t, setup{
		engine: func(name string, o *enginesim.Options) {
			if name == "d1" {
				o.Core.Cost.Speed = 0.05
			}
		},
		options: func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) },
	}, func(w *world) {
		slow := w.d[1].addr
		there := func() int { return w.seriesOf("tandem_leg_seconds_count", "decode", slow) }
		early := 0
		for i := range 40 {
			p := chat(true)
			// Different prompts, or the cache of d0 would attract them all.
			p.body = strings.Replace(p.body, "Be brief.", fmt.Sprintf("Be brief, %d times.", i), 1)
			w.exact(p, w.ask(p))
			if i == 14 { // by then both replicas have ended enough answers
				early = there()
			}
		}
		time.Sleep(10 * time.Second) // longer than the poll interval
		if n := there() - early; n > 1 {
			t.Errorf("%d of the last 25 requests went to the slow replica", n)
		}
		if n := w.count("tandem_replica_state", slow); n != 1 {
			t.Errorf("%d states of %s are set, want one: slow", n, slow)
		}
		if n := w.count("tandem_replica_state", ""); n != 1 {
			t.Errorf("%d states are set, want one", n)
		}
		shown, err := json.Marshal(w.o.State().Status())
		if err != nil || !strings.Contains(string(shown), `"state":"slow","cause":"its decode steps take `) {
			t.Errorf("/debug/replicas: %v, %s", err, shown)
		}
		if ready := w.get("admin", "/readyz").raw; strings.Count(ready, `"slow"`) != 1 {
			t.Errorf("the admin's /readyz does not show exactly one slow replica: %s", ready)
		}
		if ready := w.get("front", "/readyz").raw; strings.Contains(ready, "slow") {
			t.Errorf("the front's /readyz shows that a replica is slow: %s", ready)
		}
	})
	if n := strings.Count(log.String(), "level=WARN msg=\"replica state\""); n != 1 {
		t.Errorf("%d log lines warn of a state, want 1:\n%s", n, log.String())
	}
}

// ofFewSequences is the setup of one decode replica that runs at most this many sequences at a time.
func ofFewSequences(most int) setup {
	return setup{
		decode: 1, config: longAnswers,
		engine: func(_ string, o *enginesim.Options) { o.Core.MaxSeqs = most },
	}
}

// manyAtOnce starts n requests for long answers, and waits until load reports show how many of them run.
func (w *world) manyAtOnce(n int) (all []*pending) {
	for range n {
		all = append(all, w.begin(longPrompt(1500)))
	}
	time.Sleep(12 * time.Second)
	return all
}

// A decode replica runs its maximum of sequences, although it has free blocks. That is shown: in its state
// and its learned limit, in the metrics, on the page, and in the log.
func TestAReplicaFullBySequencesIsSeen(t *testing.T) {
	const most = 10
	var log bytes.Buffer
	s := ofFewSequences(most)
	s.options = func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	in(t, s, func(w *world) {
		if n := w.count("tandem_replica_max_sequences", ""); n != 0 {
			t.Errorf("the limit is %d before anything is learned", n)
		}
		all := w.manyAtOnce(2 * most)
		if n := w.count("tandem_replica_max_sequences", w.d[0].addr); n != most {
			t.Errorf("learned a limit of %d sequences, want %d", n, most)
		}
		if n := w.count("tandem_replica_state", fleet.StateSequences); n != 1 {
			t.Errorf("%d replicas are shown as full by sequences, want 1", n)
		}
		shown, err := json.Marshal(w.o.State().Status())
		for _, want := range []string{`"sequences_full","cause":"it runs no more than 10 `, `"max_num_seqs":10`} {
			if err != nil || !strings.Contains(string(shown), want) {
				t.Errorf("/debug/replicas: %v, %s has no %s", err, shown, want)
			}
		}
		for _, r := range w.o.admin.Live().Replicas {
			if want := map[string]int{"prefill": -1, "decode": most}[r.Pool]; r.MaxSequences != want {
				t.Errorf("the page shows the limit %d for %s, want %d", r.MaxSequences, r.Name, want)
			}
		}
		for _, p := range all {
			if got := p.end(); got.status != 200 {
				t.Errorf("%d %s", got.status, got.raw)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := w.count("tandem_replica_state", fleet.StateSequences); n != 0 {
			t.Error("the replica is shown as full two minutes after its last answer")
		}
	})
	if n := strings.Count(log.String(), "state=sequences_full"); n != 2 {
		t.Errorf("%d log lines, want one for the beginning and one for the end:\n%s", n, log.String())
	}
}

// seriesOf returns the sum of the series that have labels with both values.
func (w *world) seriesOf(name, one, two string) (n int) {
	rec := httptest.NewRecorder()
	w.o.Admin().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `"`+one+`"`) &&
			strings.Contains(line, `"`+two+`"`) {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			i, err := strconv.Atoi(value)
			if err != nil {
				w.t.Errorf("/metrics: %q", line)
			}
			n += i
		}
	}
	return n
}

// hasState reports whether the replica id has this state.
func hasState(e *fleet.Endpoint, id replica.ID, state string) bool {
	return slices.ContainsFunc(e.States(id), func(s fleet.State) bool { return s.State == state })
}
