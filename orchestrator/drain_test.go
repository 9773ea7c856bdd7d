package orchestrator

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// lines returns the log lines with this message that contain the word.
func (l *logged) lines(message, word string) []string {
	return slices.DeleteFunc(l.of(message), func(line string) bool { return !strings.Contains(line, word) })
}

func (l *logged) into(o *Options) { o.Log = slog.New(slog.NewTextHandler(l, nil)) }

// order sends a command to the admin listener, as `tandem drain` does.
func (w *world) order(command, replica string, more ...string) (int, *admin.DrainAnswer) {
	w.t.Helper()
	method := http.MethodPost
	if command == "state" {
		command, method = "drain", http.MethodGet
	}
	got := w.send(w.t.Context(), "admin:80", prompt{
		method: method, path: "/-/" + command + "?replica=" + replica + strings.Join(more, ""),
	})
	a := &admin.DrainAnswer{}
	if err := json.Unmarshal([]byte(got.raw), a); err != nil {
		w.t.Errorf("%s %s: status %d, %s", command, replica, got.status, got.raw)
	}
	return got.status, a
}

// A replica is drained by its name or its URL, with or without the scheme.
func TestAReplicaIsDrainedByItsURL(t *testing.T) {
	named := func(c *config.Config) { c.Pools.Decode.Replicas[0].Name = "first" }
	in(t, setup{config: named}, func(w *world) {
		for _, by := range []string{"first", "http://" + w.d[0].addr, "http://" + w.d[0].addr + "/", w.d[0].addr} {
			if status, a := w.order("drain", by); status != http.StatusOK || a.Replicas[0].Name != "first" {
				t.Errorf("drain %s: %d %+v", by, status, a)
			}
			if status, a := w.order("undrain", by); status != http.StatusOK || a.Replicas[0].State != admin.InUse {
				t.Errorf("undrain %s: %d %+v", by, status, a)
			}
		}
		if status, a := w.order("drain", "http://other:1"); status != http.StatusNotFound ||
			!strings.Contains(a.Error, "there are ") {
			t.Errorf("another URL: %d %+v", status, a)
		}
	})
}

// drain drains a replica, and fails the test if it cannot.
func (w *world) drain(e *simulated) {
	w.t.Helper()
	if status, a := w.order("drain", e.addr); status != http.StatusOK || a.Error != "" {
		w.t.Errorf("drain %s: status %d, %+v", e.name, status, a)
	}
}

func (w *world) undrain(e *simulated) {
	w.t.Helper()
	if status, a := w.order("undrain", e.addr); status != http.StatusOK || a.Replicas[0].State != admin.InUse {
		w.t.Errorf("undrain %s: status %d, %+v", e.name, status, a)
	}
}

// drained reports whether the replica is drained and empty.
func (w *world) drained(e *simulated) bool {
	w.t.Helper()
	_, a := w.order("state", e.addr)
	return a.Drained()
}

// sentTo counts the requests to an engine, including requests to tokenize.
func (w *world) sentTo(e *simulated) (n int) {
	for _, s := range w.posts(true) {
		if s.engine == e.name {
			n++
		}
	}
	return n
}

// numbered returns a different prompt for each number.
func numbered(i int, stream bool) prompt {
	p := completion(stream)
	p.body = strings.Replace(p.body, `"prompt":"`, fmt.Sprintf(`"prompt":"number %d `, i), 1)
	return p
}

// A drained replica finishes its streams and gets nothing new, not even requests to tokenize. When its
// last stream has ended, the log says once that it is empty. After undrain it is used at once.
func TestADrainedReplicaEndsItsStreams(t *testing.T) {
	for _, side := range []string{"prefill", "decode"} {
		t.Run(side, func(t *testing.T) {
			log := &logged{}
			in(t, setup{options: log.into}, func(w *world) {
				e := map[string]*simulated{"prefill": w.p[0], "decode": w.d[0]}[side]
				var streams []*pending
				for i := range 8 {
					p := numbered(i, true)
					p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":600`, 1)
					streams = append(streams, w.begin(p))
				}
				time.Sleep(2 * time.Second) // all streams have begun by then
				running := e.OpenRequests()
				if side == "decode" && running == 0 {
					t.Fatal("the replica to drain has no stream")
				}
				w.drain(e)
				w.wire.forget()
				for i := range 20 {
					p := numbered(100+i, i%2 == 0)
					w.exact(p, w.ask(p))
				}
				if n := w.sentTo(e); n != 0 {
					t.Errorf("%d requests went to the drained replica", n)
				}
				if early := w.drained(e); early == (side == "decode") {
					t.Errorf("drained: %v, with %d open requests", early, e.OpenRequests())
				}
				for _, s := range streams {
					if got := s.end(); got.status != 200 || got.fail.Message != "" || got.dones != 1 {
						t.Errorf("a stream: status %d, %v", got.status, got.fail)
					}
				}
				time.Sleep(15 * time.Second)
				if said := log.of("replica is empty: stop it now"); len(said) != 1 || !strings.Contains(said[0], e.addr) {
					t.Errorf("logged %q, want one line with the replica", said)
				}
				if !w.drained(e) {
					t.Error("the replica is not drained")
				}
				w.undrain(e)
				for i := range 20 {
					p := numbered(200+i, true)
					w.exact(p, w.ask(p))
				}
				if w.sentTo(e) == 0 {
					t.Error("the replica is not used after undrain")
				}
				if n := len(log.lines("administrative act", "client=")); n != 2 {
					t.Errorf("%d log lines name the client that drained or undrained, want 2", n)
				}
			})
		})
	}
}

// A drain at any point of a request costs no client its answer. A decode replica without its leg yet never
// gets it. A prefill replica counts as empty only when no decode engine can still read its blocks.
func TestADrainAtAnyMomentOfARequest(t *testing.T) {
	for _, seam := range []string{"plan", "prefill", "handoff", "decode"} {
		for _, side := range []string{"prefill", "decode"} {
			t.Run(seam+"/"+side, func(t *testing.T) {
				log := &logged{}
				in(t, setup{options: log.into, config: func(c *config.Config) {
					c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = 50*time.Millisecond, 50*time.Millisecond
				}, engine: func(_ string, o *enginesim.Options) { o.TransferLatency = 2 * time.Second }}, func(w *world) {
					e := w.drainAt(seam, side)
					w.t.Logf("%s is drained", e.name)
					if said := log.of("replica is empty: stop it now"); len(said) != 1 {
						t.Errorf("logged %q, want one line", said)
					}
				})
			})
		}
	}
}

// drainAt drains a replica when a request reaches a seam, and returns the replica: the one that serves the
// request, if it has been chosen by then.
func (w *world) drainAt(seam, side string) *simulated {
	var chosen atomic.Pointer[simulated]
	w.at(seam, func(string) {
		e := map[string]*simulated{"prefill": w.p[0], "decode": w.d[0]}[side]
		if seam != "plan" {
			e = w.booked(side)
		}
		if chosen.CompareAndSwap(nil, e) {
			w.drain(e)
		}
	})
	done := make(chan struct{})
	go func() { // whenever the replica is reported as empty, it has to be empty
		defer close(done)
		for !w.emptyOnce(chosen.Load()) {
			time.Sleep(time.Millisecond)
		}
	}()
	p := completion(true)
	w.exact(p, w.ask(p))
	<-done
	e := chosen.Load()
	asked := 0
	for _, s := range w.posts(false) {
		if s.engine == e.name {
			asked++
		}
	}
	want := 0
	if seam == "handoff" || seam == "decode" || side == "prefill" && seam == "prefill" { // its leg was sent
		want = 1
	}
	if asked != want {
		w.t.Errorf("%s got %d legs, want %d", e.name, asked, want)
	}
	return e
}

// emptyOnce reports whether e is shown as empty, and checks that it is empty then. A nil e is not chosen
// yet.
func (w *world) emptyOnce(e *simulated) bool {
	if e == nil {
		return false
	}
	ws, err := w.o.fleet.Find(e.addr)
	if err != nil || !ws[0].DrainStatus().Empty {
		return err != nil
	}
	if held, open := e.HeldBlocks(), e.OpenRequests(); held > 0 || open > 0 {
		w.t.Errorf("%s is shown as empty with %d held blocks and %d requests", e.name, held, open)
	}
	return true
}

// booked returns the replica of this side that has a booking.
func (w *world) booked(side string) *simulated {
	for _, m := range w.o.prefill.Status(time.Now()) {
		if side == "prefill" && m.Requests > 0 {
			return w.by(string(m.ID))
		}
	}
	for _, m := range w.o.decode.Status(time.Now()) {
		if side == "decode" && m.Leases > 0 {
			return w.by(string(m.ID))
		}
	}
	if side == "prefill" { // the booking of the prefill ended with its leg
		for _, s := range w.posts(false) {
			for _, e := range w.p {
				if s.engine == e.name {
					return e
				}
			}
		}
	}
	return nil
}

// A client leaves during a KV transfer. The decode engine may still read blocks until their lease ends, so
// the prefill engine is not empty before that.
func TestBlocksThatMayBeReadKeepAReplicaFromBeingEmpty(t *testing.T) {
	in(t, setup{
		config: func(c *config.Config) { c.Pools.Prefill.PollInterval = time.Second },
		engine: func(_ string, o *enginesim.Options) { o.TransferLatency = 5 * time.Second },
	}, func(w *world) {
		go func() {
			time.Sleep(2 * time.Second) // during the transfer
			leave(w, nil)
		}()
		_ = w.ask(completion(true))
		left := time.Now()
		e := w.booked("prefill")
		w.drain(e)
		for !w.drained(e) {
			if time.Since(left) > time.Minute {
				t.Fatal("the replica is not empty after a minute")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if after := time.Since(left); after < w.cfg.Connector.Lease || after > w.cfg.Connector.Lease+5*time.Second {
			t.Errorf("the replica is empty after %v, want soon after the lease of %v", after, w.cfg.Connector.Lease)
		}
	})
}

// The last replica of a model is drained only with force. Then waiting and new requests are refused at
// once with a message about the drain, and the router is not ready.
func TestTheLastReplicaIsDrainedByForceAlone(t *testing.T) {
	log := &logged{}
	s := narrow(nil)
	s.options = log.into
	in(t, s, func(w *world) {
		for _, e := range []*simulated{w.p[0], w.d[0]} { // local is never, so both are needed
			if status, a := w.order("drain", e.addr); status != http.StatusConflict ||
				!strings.Contains(a.Error, "last usable") || !strings.Contains(a.Error, "--force") {
				t.Errorf("status %d, %+v", status, a)
			}
		}
		p := completion(true)
		first := w.begin(p)
		time.Sleep(100 * time.Millisecond)
		waiting := w.begin(p)
		time.Sleep(20 * time.Millisecond)
		if w.o.queue.length() != 1 {
			t.Fatal("no request waits for room")
		}
		if status, a := w.order("drain", w.d[0].addr, "&force=true"); status != http.StatusOK {
			t.Fatalf("with force: status %d, %+v", status, a)
		}
		drained := time.Now()
		got := waiting.end()
		if took := time.Since(drained); !strings.Contains(got.fail.Message, "is being drained") || took > 0 {
			t.Errorf("after %v: %q", took, got.fail.Message)
		}
		w.failed(p, got, http.StatusServiceUnavailable)
		w.exact(p, first.end())
		if got := w.get("front", "/readyz"); got.status != http.StatusServiceUnavailable ||
			!strings.Contains(got.raw, "being drained") {
			t.Errorf("readyz: %d %s", got.status, got.raw)
		}
		if n := len(log.lines("the last usable replica is drained", w.d[0].addr)); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		w.undrain(w.d[0])
		w.exact(p, w.ask(p))
	})
}

// Requests that wait for room on a replica wait for the other replicas when it is drained.
func TestThoseThatWaitMoveOn(t *testing.T) {
	s := narrow(nil)
	s.decode = 2
	s.engine = func(name string, o *enginesim.Options) {
		if name[0] == 'd' {
			o.Core.Blocks = 30
		}
	}
	in(t, s, func(w *world) {
		var all []*pending
		for i := range 6 { // two run, the others wait
			all = append(all, w.begin(numbered(i, true)))
		}
		time.Sleep(50 * time.Millisecond)
		if n := w.o.queue.length(); n < 3 {
			t.Fatalf("only %d requests wait for room", n)
		}
		w.wire.forget()
		w.drain(w.d[0])
		for i, p := range all {
			if got := p.end(); got.status != 200 || got.fail.Message != "" {
				t.Errorf("request %d: status %d, %v", i, got.status, got.fail)
			}
		}
		if n := w.sentTo(w.d[0]); n != 0 {
			t.Errorf("%d requests went to the drained replica", n)
		}
	})
}

// A drain survives a reload that gives the engine another name or moves its name to another address. It
// ends when the replica has left the file. A drain in the file holds as long as it stands there.
func TestADrainSurvivesAReload(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		state := func(name string) string {
			_, a := w.order("state", name)
			if len(a.Replicas) == 0 {
				return a.Error
			}
			return a.Replicas[0].State
		}
		wants := func(name, want string) {
			t.Helper()
			if got := state(name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		named := *w.cfg
		named.Pools.Decode.Replicas = slices.Clone(w.cfg.Pools.Decode.Replicas)
		for i := range named.Pools.Decode.Replicas {
			named.Pools.Decode.Replicas[i].Name = fmt.Sprintf("d%d", i)
		}
		w.drain(w.d[0])
		time.Sleep(10 * time.Second)
		wants(w.d[0].addr, fleet.StateDrained)
		w.apply(&named) // another name
		wants("d0", fleet.StateDrained)

		moved := named // d0 is now at the address of d1, and d1 has left
		moved.Pools.Decode.Replicas = slices.Clone(named.Pools.Decode.Replicas)
		moved.Pools.Decode.Replicas = moved.Pools.Decode.Replicas[1:]
		moved.Pools.Decode.Replicas[0].Name = "d0"
		w.apply(&moved)
		time.Sleep(10 * time.Second)
		wants("d0", fleet.StateDrained)
		w.apply(&named) // moved back: the mark stays with the engine that was d0 last
		time.Sleep(10 * time.Second)
		wants("d1", fleet.StateDrained)
		wants("d0", admin.InUse)
		if status, _ := w.order("undrain", "d1"); status != http.StatusOK {
			t.Errorf("undrain: %d", status)
		}
		w.order("drain", "d0")
		gone := named
		gone.Pools.Decode.Replicas = named.Pools.Decode.Replicas[1:]
		w.apply(&gone)
		w.apply(&named)
		time.Sleep(10 * time.Second)
		wants("d0", admin.InUse)

		byFile := named
		byFile.Pools.Decode.Replicas = slices.Clone(named.Pools.Decode.Replicas)
		byFile.Pools.Decode.Replicas[2].Drain = true
		w.apply(&byFile)
		time.Sleep(10 * time.Second)
		wants("d2", fleet.StateDrained)
		status, a := w.order("undrain", "d2")
		if status != http.StatusConflict || !strings.Contains(a.Error, "file drains d2") {
			t.Errorf("undrain: %d, %+v", status, a)
		}
		w.apply(&named)
		wants("d2", admin.InUse)
		w.apply(w.cfg)
		p := completion(true)
		w.exact(p, w.ask(p))
		status, a = w.order("drain", "d9")
		if status != http.StatusNotFound || !strings.Contains(a.Error, w.d[1].addr) {
			t.Errorf("an unknown name: %d, %+v", status, a)
		}
	})
}

// With a state file a drain survives a restart of the router from the moment of the command's answer. The
// new router drains the replica before its first request.
func TestADrainOutlivesTheRouter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	keeping := setup{config: func(c *config.Config) { c.State.File = name }}
	in(t, keeping, func(w *world) {
		w.drain(w.d[0])
		kept, err := readStateFile(name)
		if err != nil || len(kept.Drained) != 1 || kept.Drained[0].Name != w.d[0].addr {
			t.Errorf("the state file has %+v, %v; want one drained replica", kept, err)
		}
	})
	in(t, keeping, func(w *world) {
		w.wire.forget()
		for i := range 10 {
			p := numbered(i, true)
			w.exact(p, w.ask(p))
		}
		if n := w.sentTo(w.d[0]); n != 0 {
			t.Errorf("%d requests went to the drained replica", n)
		}
		w.undrain(w.d[0])
	})
	in(t, keeping, func(w *world) {
		if got := w.o.fleet.Drains(); len(got) != 0 {
			t.Errorf("still drained: %v", got)
		}
	})
}

// A drained replica dies. It counts as empty when its requests have moved to other replicas, and it is
// still drained when it comes back.
func TestADrainedReplicaDiesAndComesBack(t *testing.T) {
	in(t, setup{decode: 3}, func(w *world) {
		var at string
		w.at("decode", func(engine string) { at = engine })
		p := completion(true)
		w.exact(p, w.ask(p, func(event int) {
			if event == 3 {
				w.drain(w.by(at))
				w.net.EndEach(at, true)
				w.net.Cut(at)
			}
		}))
		died := w.by(slices.DeleteFunc([]string{w.d[0].addr, w.d[1].addr, w.d[2].addr}, func(a string) bool {
			ws, err := w.o.fleet.Find(a)
			return err != nil || !ws[0].Draining()
		})[0])
		time.Sleep(10 * time.Second)
		if !w.drained(died) {
			t.Error("the dead engine does not count as empty")
		}
		w.net.EndEach(died.addr, false)
		time.Sleep(20 * time.Second)
		w.wire.forget()
		for i := range 10 {
			p := numbered(i, true)
			w.exact(p, w.ask(p))
		}
		if n := w.sentTo(died); n != 0 || !w.drained(died) {
			t.Errorf("after its return: %d requests, drained: %v", n, w.drained(died))
		}
		got := w.get("admin", "/readyz")
		if got.status != 200 || !strings.Contains(got.raw, `"reason": "drained"`) {
			t.Errorf("readyz: %d %s", got.status, got.raw)
		}
	})
}

// Replicas are drained and undrained in turn, many times, under load. No client gets an error.
func TestDrainsInALoopUnderLoad(t *testing.T) {
	in(t, setup{prefill: 3, decode: 3}, func(w *world) {
		stop := w.load(8)
		for round := range 12 {
			for _, e := range []*simulated{w.p[round%3], w.d[(round+1)%3]} {
				w.drain(e)
				// requests that were booked before are sent by then
				time.Sleep(time.Duration(round+1) * 13 * time.Millisecond)
				w.wire.forget()
				time.Sleep(200 * time.Millisecond)
				for _, s := range w.posts(true) {
					if s.engine == e.name {
						t.Errorf("round %d: %s went to %s", round, s.path, e.name)
					}
				}
				w.undrain(e)
			}
		}
		stop()
	})
}

// Another client uses an engine directly. The engine is not empty before that request has ended, and the
// answer says so.
func TestOthersKeepAReplicaFromBeingEmpty(t *testing.T) {
	in(t, setup{}, func(w *world) {
		p := completion(true)
		p.body = strings.Replace(p.body, `"max_tokens":12`, `"max_tokens":2000`, 1)
		go func() { _ = w.send(w.t.Context(), w.d[0].addr, p) }()
		time.Sleep(time.Second)
		w.drain(w.d[0])
		time.Sleep(10 * time.Second)
		_, a := w.order("state", w.d[0].addr)
		if a.Drained() || !strings.Contains(a.Replicas[0].Left, "reports 1 requests") {
			t.Errorf("%+v", a)
		}
		time.Sleep(20 * time.Second)
		if !w.drained(w.d[0]) {
			t.Error("the replica is not drained after the other client's request ended")
		}
	})
}

// A server is drained as a whole: in both pools if it is in both, and with all its ranks.
func TestAServerIsDrainedAsAWhole(t *testing.T) {
	in(t, setup{decode: 2, engine: twoRanks}, func(w *world) {
		if status, a := w.order("drain", w.d[0].addr+"/dp1"); status != http.StatusNotFound ||
			!strings.Contains(a.Error, "one rank of "+w.d[0].addr) {
			t.Errorf("a rank: %d, %+v", status, a)
		}
		w.drain(w.d[0])
		time.Sleep(10 * time.Second)
		if n := w.count("tandem_replica_state", fleet.StateDrained); n != 2 || !w.drained(w.d[0]) {
			t.Errorf("%d ranks are drained, want 2", n)
		}
		w.undrain(w.d[0])

		both := *w.cfg
		shared := config.Replica{Name: "both", URL: w.d[1].URL(), Shared: true}
		both.Pools.Prefill.Replicas = append(slices.Clone(w.cfg.Pools.Prefill.Replicas), shared)
		both.Pools.Decode.Replicas = []config.Replica{w.cfg.Pools.Decode.Replicas[0], shared}
		w.apply(&both)
		time.Sleep(10 * time.Second)
		for _, name := range []string{"both", "both/prefill"} {
			status, a := w.order("drain", name)
			if status != http.StatusOK || len(a.Replicas) != 2 {
				t.Errorf("%s: %d, %+v", name, status, a)
			}
			if status, a = w.order("undrain", name); status != http.StatusOK || a.Replicas[1].State != admin.InUse {
				t.Errorf("%s: %d, %+v", name, status, a)
			}
		}
		marked := both // in one of the two pools
		marked.Pools.Decode.Replicas = slices.Clone(both.Pools.Decode.Replicas)
		marked.Pools.Decode.Replicas[1].Drain = true
		w.apply(&marked)
		time.Sleep(10 * time.Second)
		if n := w.count("tandem_replica_state", fleet.StateDrained); n != 2 {
			t.Errorf("drain in one pool drained %d replicas, want 2", n)
		}
		w.wire.forget()
		for i := range 10 {
			p := numbered(i, true)
			w.exact(p, w.ask(p))
		}
		if n := w.sentTo(w.d[1]); n != 0 {
			t.Errorf("%d requests went to the drained server", n)
		}
		w.apply(w.cfg)
	})
}
