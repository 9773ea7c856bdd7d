package orchestrator

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/admin"
)

// When an engine that lacks a flag joins, the router reports it: in one log line that names the flag, and
// as states in /readyz and the metrics.
func TestAnEngineThatLacksAFlagIsSeen(t *testing.T) {
	var log bytes.Buffer
	lacking := func(name string, o *enginesim.Options) {
		switch name {
		case "d0":
			o.Wrong.NoConnector, o.Core.NoPrefixCaching = true, true
		case "d1":
			o.Wrong.Tokenizer = "another"
		case "p1":
			o.Version = "0.31.0"
		}
	}
	in(t, setup{prefill: 2, decode: 3, engine: lacking, options: logsTo(&log)}, func(w *world) {
		time.Sleep(time.Second)
		var ready admin.Readiness
		if err := json.Unmarshal([]byte(w.get("admin", "/readyz").raw), &ready); err != nil || !ready.Ready {
			t.Fatalf("/readyz: %v", err)
		}
		want := map[string][]string{
			w.p[0].addr: nil, w.p[1].addr: {"other_version"}, w.d[2].addr: nil,
			w.d[0].addr: {"no_connector", "no_prefix_caching"}, w.d[1].addr: {"other_tokenizer"},
		}
		for _, r := range ready.Replicas {
			states := slices.DeleteFunc(r.States, func(s string) bool { return s == "unpaired" })
			if !slices.Equal(states, want[r.Name]) {
				t.Errorf("/readyz: %s has %q, want %q", r.Name, states, want[r.Name])
			}
		}
		for _, state := range []string{
			"no_connector", "no_prefix_caching", "other_tokenizer", "other_version",
		} {
			if n := w.count("tandem_replica_state", state); n != 1 {
				t.Errorf("%d replicas have the state %s, want 1", n, state)
			}
		}
	})
	var lines []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "is not set up for this router") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("%d log lines, want one for each engine with a wrong setup:\n%s", len(lines), log.String())
	}
	for _, flag := range []string{
		`NixlConnector`, "--no-enable-prefix-caching", "--chat-template", "one version",
	} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, flag) }) {
			t.Errorf("no line names %s: %q", flag, lines)
		}
	}
}

// A client that asks for an unknown model gets the list of served models. If only the other pool serves
// the model, the error says so.
func TestARefusedModelIsExplained(t *testing.T) {
	other := func(name string, o *enginesim.Options) {
		if strings.HasPrefix(name, "d") {
			o.Model = "decoded"
		}
	}
	in(t, setup{prefill: 1, decode: 1, engine: other}, func(w *world) {
		p := adapted(completion(false), "nope")
		if got := w.ask(p); got.status != 404 || !strings.Contains(got.raw, "Served here: decoded, sim.") {
			t.Errorf("%d %s", got.status, got.raw)
		}
		p = adapted(completion(false), "sim")
		if got := w.ask(p); got.status != 503 ||
			!strings.Contains(got.raw, "The model `sim` is served by no decode replica.") {
			t.Errorf("%d %s", got.status, got.raw)
		}
		w.p[0].Close()
		w.d[0].Close()
		time.Sleep(time.Minute)
		if got := w.ask(adapted(completion(false), "decoded")); got.status != 503 ||
			!strings.Contains(got.raw, `"The only decode replica is unreachable."`) ||
			strings.Contains(got.raw, w.d[0].addr) {
			t.Errorf("%d %s", got.status, got.raw)
		}
	})
}

// If no replica can serve a request, the error names the pool and the model, the number of replicas, and
// whether they are unreachable. It does not name replicas, because their names may be addresses; the log
// has them.
func TestWhichReplicasAreMissingIsSaid(t *testing.T) {
	in(t, setup{prefill: 1, decode: 3}, func(w *world) {
		p := completion(false)
		said := func(want string) {
			t.Helper()
			got := w.ask(p)
			if got.status != 503 || !strings.Contains(got.raw, want) || strings.Contains(got.raw, w.d[0].addr) {
				t.Errorf("%d %s, want %s", got.status, got.raw, want)
			}
		}
		w.d[0].Close()
		time.Sleep(time.Minute)
		for _, d := range w.d[1:] {
			if status, a := w.order("drain", d.addr, "&force=true"); status != 200 {
				t.Fatal(a.Error)
			}
		}
		said("Each of the 2 decode replicas that serve the model `sim` and can be reached is ejected, asleep, " +
			"drained, or was tried")
		for _, d := range w.d[1:] {
			d.Close()
		}
		time.Sleep(time.Minute)
		said("Each of the 3 decode replicas is unreachable.")
	})
}

// An engine that serves another model than the file says joins with a WARN. The WARN names the line to
// change. An engine that serves a model under the name of an alias joins with a WARN, too. Both states end
// with the reload of a right file.
func TestAnEngineWithAnotherModelIsSeen(t *testing.T) {
	var log bytes.Buffer
	meant := func(c *config.Config) {
		c.Pools.Prefill.Replicas[0].Model, c.Pools.Decode.Replicas[0].Model = "sim", "big"
		c.Aliases = []config.Alias{{Name: "nick", To: []config.Target{{Model: "sim", Weight: 1}}}}
	}
	nicks := func(name string, o *enginesim.Options) {
		if name == "d1" {
			o.Aliases = []string{"nick"}
		}
	}
	in(t, setup{config: meant, engine: nicks, options: logsTo(&log)}, func(w *world) {
		time.Sleep(time.Second)
		for _, state := range []string{"other_model", "hidden_model"} {
			if n := w.count("tandem_replica_state", state); n != 1 {
				t.Errorf("%d replicas have the state %s, want 1", n, state)
			}
		}
		w.exact(completion(false), w.ask(completion(false)))
		right := *w.cfg
		right.Pools.Decode.Replicas = slices.Clone(right.Pools.Decode.Replicas)
		right.Pools.Decode.Replicas[0].Model, right.Aliases = "sim", nil
		w.apply(&right)
		time.Sleep(time.Second)
		for _, state := range []string{"other_model", "hidden_model"} {
			if n := w.count("tandem_replica_state", state); n != 0 {
				t.Errorf("%d replicas have the state %s after the reload, want 0", n, state)
			}
		}
	})
	for _, want := range []string{
		"write `model: sim` at the replica d0.internal:8000", "nick, which is the name of an alias",
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%d lines of the log say %q, want 1:\n%s", n, want, log.String())
		}
	}
}
