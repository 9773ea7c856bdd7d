package orchestrator

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// story is one kind of trouble during a request. It is tested with every connector order, with and without
// a stream.
type story struct {
	name   string
	orders []connector.Order // nil: all
	stream []bool            // nil: both

	// What happens, by the place where it happens: a span of the request (tokenize, plan, prefill, handoff,
	// decode) or "third event", the third event that the client gets. It happens in the first attempt; with
	// always, in every attempt.
	at     map[string]trouble
	always bool

	// The expected result.
	code     int           // of the client's error; 0: the answer is exact; clientGone: no client is left
	kind     string        // the outcome; "" means "ok"
	attempts int           // 0 means 1
	took     time.Duration // the exact duration; 0: not checked
	within   time.Duration // how much longer than took it may last
	expires  bool          // a prefill lease has to expire; otherwise every block is free within two seconds
	back     int           // number of leases given back
}

// trouble does something to the replica that serves the request; the replica is nil between the legs.
type trouble func(w *world, at *simulated)

func fault(f enginesim.Fault) trouble {
	return func(w *world, at *simulated) {
		if err := at.Fault(f); err != nil {
			w.t.Error(err)
		}
	}
}

func fail(status int) trouble { return fault(enginesim.Fault{Kind: "fail", Status: status}) }

// later calls do after a while, while the request goes on.
func later(after time.Duration, do trouble) trouble {
	return func(w *world, at *simulated) {
		go func() {
			time.Sleep(after)
			do(w, at)
		}()
	}
}

// both does a and then b.
func both(a, b trouble) trouble {
	return func(w *world, at *simulated) { a(w, at); b(w, at) }
}

var (
	hang     = fault(enginesim.Fault{Kind: "stall"})
	miscount = fault(enginesim.Fault{Kind: "miscount", Leg: "prefill"})
	reset    = later(5*time.Millisecond, func(w *world, at *simulated) { w.net.Cut(at.addr) })
	vanish   = func(w *world, at *simulated) { w.net.Refuse(at.addr, true); w.net.Cut(at.addr) }
	leave    = func(w *world, _ *simulated) {
		w.mid.mu.Lock()
		defer w.mid.mu.Unlock()
		w.leave()
	}
)

// decodesGone makes every decode replica unreachable, before the health checks can notice it.
func decodesGone(w *world, _ *simulated) {
	for _, d := range w.d {
		vanish(w, d)
	}
}

// leaveBetween makes the client leave between the legs, and waits until the router has noticed.
func leaveBetween(w *world, _ *simulated) {
	leave(w, nil)
	time.Sleep(time.Millisecond)
}

func wait(d time.Duration) trouble { return func(*world, *simulated) { time.Sleep(d) } }

// stoodStill simulates a router process that was stopped while the prefill engine's answer was on its way.
func stoodStill(w *world, _ *simulated) {
	w.o.clock.Tick(time.Now().Add(20 * time.Second))
}

// transferFails makes the prefill replicas' blocks unreachable for a while; 0 means for good. Decode
// engines wait for a handshake and then report an error.
func transferFails(for_ time.Duration) trouble {
	return func(w *world, _ *simulated) {
		for _, p := range w.p {
			w.net.Refuse(p.side, true)
			if for_ > 0 {
				later(for_, func(*world, *simulated) { w.net.Refuse(p.side, false) })(w, p)
			}
		}
	}
}

func freezePrefill(w *world, _ *simulated) {
	for _, p := range w.p {
		fault(enginesim.Fault{Kind: "freeze", For: 1500 * time.Millisecond})(w, p)
	}
}

// reload removes all replicas from the configuration, also those that serve the request, and changes
// alpha.
func reload(w *world, _ *simulated) {
	cfg := *w.cfg
	cfg.Scoring.Alpha = config.Alpha{Value: 2}
	cfg.Pools.Prefill.Replicas, cfg.Pools.Decode.Replicas = nil, nil
	if err := w.o.Apply(&cfg); err != nil {
		w.t.Error(err)
	}
}

var (
	sequential = []connector.Order{connector.Sequential}
	concurrent = []connector.Order{connector.Concurrent}

	streamed   = []bool{true}
	unstreamed = []bool{false}
)

// normal is the duration of a successful answer of 12 tokens with the Sequential order.
const normal = prefillStep + transfer + 12*decodeStep

var stories = []story{
	{name: "all is well"},
	{name: "all is well, to the millisecond", orders: sequential, took: normal},

	// Prefill.
	{name: "prefill says 400", at: map[string]trouble{"prefill": fail(400)}, code: 400, kind: "status_400"},
	{name: "prefill says 503 once", at: map[string]trouble{"prefill": fail(503)}, attempts: 2},
	{
		name: "prefill says 503 everywhere", at: map[string]trouble{"prefill": fail(503)}, always: true, code: 503,
		kind: "status_503", attempts: 2,
	},
	{
		name: "prefill hangs once, to the millisecond", orders: sequential, at: map[string]trouble{"prefill": hang},
		attempts: 2, took: 2*time.Second + normal,
	},
	{
		name: "prefill hangs everywhere", orders: sequential, at: map[string]trouble{"prefill": hang}, always: true,
		code: 504, kind: "timeout", attempts: 2, took: 4 * time.Second,
	},
	{
		name: "both legs hang", orders: concurrent, at: map[string]trouble{"prefill": hang, "decode": hang},
		always: true, code: 504, kind: "timeout", attempts: 2, took: 4 * time.Second,
	},
	{name: "prefill resets once", at: map[string]trouble{"prefill": reset}, attempts: 2, expires: true},
	{
		name: "prefill resets everywhere", at: map[string]trouble{"prefill": reset}, always: true, code: 502,
		kind: "broken", attempts: 2, expires: true,
	},
	{
		name: "prefill replica vanishes at work",
		at:   map[string]trouble{"prefill": later(5*time.Millisecond, vanish)}, attempts: 2, expires: true,
	},
	{name: "prefill replica vanished unnoticed", at: map[string]trouble{"prefill": vanish}, attempts: 2},

	{
		name: "prefill counts another prompt", orders: sequential, at: map[string]trouble{"prefill": miscount},
		attempts: 2, back: 1,
	},

	// Between the legs.
	{
		name: "params are older than the margin", orders: sequential,
		at: map[string]trouble{"handoff": wait(16 * time.Second)}, attempts: 2, back: 1,
	},
	{
		name: "params always are older than the margin", orders: sequential,
		at: map[string]trouble{"handoff": wait(16 * time.Second)}, always: true,
		code: 502, kind: "expired", attempts: 3, took: 3 * (16*time.Second + prefillStep), within: 3 * prefillStep,
		back: 3,
	},
	{
		name: "params just within the margin", orders: sequential,
		at: map[string]trouble{"handoff": wait(15 * time.Second)},
	},
	{
		name: "params grow old while the decode leg is on its way out", orders: sequential,
		at: map[string]trouble{"decode": wait(16 * time.Second)}, attempts: 2, back: 1,
	},
	{
		name: "the process stood still during prefill", orders: sequential,
		at: map[string]trouble{"prefill": later(5*time.Millisecond, stoodStill)}, attempts: 2, back: 1,
	},
	{
		name: "the process stood still before prefill", orders: sequential,
		at: map[string]trouble{"plan": stoodStill},
	},
	{
		name: "decode is gone by the time prefill answers", orders: sequential,
		at: map[string]trouble{"handoff": decodesGone}, code: 503, kind: "no_replica", attempts: 3, expires: true,
	},

	// Decode, before the first content.
	{
		name: "decode says 400", at: map[string]trouble{"decode": fail(400)}, code: 400, kind: "status_400",
		expires: true,
	},
	{name: "decode says 503 once", at: map[string]trouble{"decode": fail(503)}, attempts: 2, expires: true},
	{
		name: "decode says 503 everywhere", at: map[string]trouble{"decode": fail(503)}, always: true, code: 503,
		kind: "status_503", attempts: 2, expires: true,
	},
	{
		name: "decode refuses the connection", orders: sequential, at: map[string]trouble{"decode": vanish},
		attempts: 2, back: 1,
	},
	{
		name: "decode refuses the connection", orders: concurrent, at: map[string]trouble{"decode": vanish},
		attempts: 2,
	},
	{
		name: "decode hangs before its first byte", orders: sequential, stream: streamed,
		at: map[string]trouble{"decode": hang}, code: 504, kind: "timeout",
		took: prefillStep + 7*time.Second, expires: true,
	},
	{
		name: "decode hangs before its answer", orders: sequential, stream: unstreamed,
		at: map[string]trouble{"decode": hang}, code: 504, kind: "answer_timeout",
		took: prefillStep + 8*time.Second, expires: true,
	},
	{
		name: "decode resets before its first byte", at: map[string]trouble{"decode": reset}, attempts: 2,
		expires: true,
	},
	{
		name: "the transfer fails once", orders: sequential,
		at: map[string]trouble{"handoff": transferFails(time.Second)}, attempts: 2, expires: true,
	},
	{
		name: "the transfer always fails", orders: sequential, at: map[string]trouble{"handoff": transferFails(0)},
		code: 500, attempts: 2, expires: true,
	},

	// Decode, after the first content.
	{
		name: "the stream is cut", stream: streamed,
		at: map[string]trouble{"decode": fault(enginesim.Fault{Kind: "cut_stream", After: 4})}, code: 502,
		kind: "broken",
	},
	{
		name: "the stream goes silent", stream: streamed,
		at: map[string]trouble{"decode": fault(enginesim.Fault{Kind: "stall_stream", After: 4})}, code: 502,
		kind: "broken",
		took: 4 * time.Second, within: time.Second,
	},
	{name: "the decode replica vanishes in the " +
		"stream", stream: streamed, at: map[string]trouble{"third event": func(w *world, _ *simulated) {
		decodesGone(w, nil)
	}}, code: 502, kind: "broken"},
	{name: "the prefill replica vanishes in the " +
		"stream", stream: streamed, at: map[string]trouble{"third event": func(w *world, _ *simulated) {
		for _, p := range w.p {
			vanish(w, p)
		}
	}}},

	// The client leaves.
	{
		name: "the client leaves while tokens are asked for",
		at:   map[string]trouble{"tokenize": both(freezePrefill, later(time.Second, leave))}, code: clientGone,
		kind: "client_gone",
	},
	{
		name: "the client leaves during prefill", orders: sequential,
		at: map[string]trouble{"prefill": later(5*time.Millisecond, leave)}, code: clientGone, kind: "client_gone",
		back: 1,
	},
	{
		name: "the client leaves during prefill", orders: concurrent,
		at: map[string]trouble{"prefill": later(5*time.Millisecond, leave)}, code: clientGone, kind: "client_gone",
		expires: true,
	},
	{
		name: "the client leaves between the legs", orders: sequential,
		at: map[string]trouble{"handoff": leaveBetween}, code: clientGone, kind: "client_gone", back: 1,
	},
	{
		name: "the client leaves between the legs", orders: concurrent,
		at: map[string]trouble{"handoff": leaveBetween}, code: clientGone, kind: "client_gone",
	},
	{
		name: "the client leaves during the transfer",
		at:   map[string]trouble{"decode": later(5*time.Millisecond, leave)}, code: clientGone, kind: "client_gone",
	},
	{
		name: "the client leaves in the stream", stream: streamed, at: map[string]trouble{"third event": leave},
		code: clientGone, kind: "client_gone",
	},
	{
		name: "the client leaves while the answer is made", stream: unstreamed,
		at: map[string]trouble{"decode": later(80*time.Millisecond, leave)}, code: clientGone, kind: "client_gone",
	},

	// A reload.
	{name: "a reload in the stream", stream: streamed, at: map[string]trouble{"third event": reload}},
	{
		name: "a reload while the answer is made", stream: unstreamed,
		at: map[string]trouble{"decode": later(80*time.Millisecond, reload)},
	},
	{
		name: "a reload takes the decode replicas between the legs", orders: sequential,
		at: map[string]trouble{"handoff": reload}, code: 503, kind: "no_replica", attempts: 2, expires: true,
	},
}

// Here a broken stream ends with an error; continue_test.go has the tests in which it continues.
func TestStories(t *testing.T) { tellAll(t, stories, nothingGoesOn) }

func nothingGoesOn(c *config.Config) { c.Retry.Continue = config.ContinueOff }

func tellAll(t *testing.T, all []story, configure func(*config.Config)) {
	for _, s := range all {
		for _, order := range cmpSlice(s.orders, []connector.Order{connector.Sequential, connector.Concurrent}) {
			for _, stream := range cmpSlice(s.stream, []bool{true, false}) {
				p := completion(false)
				if stream {
					p = chat(true)
				}
				t.Run(fmt.Sprintf("%s/%v/stream=%v", s.name, order, stream), func(t *testing.T) {
					in(t, setup{order: order, config: configure}, func(w *world) { s.tell(w, p) })
				})
			}
		}
	}
}

func cmpSlice[T any](a, b []T) []T {
	if a != nil {
		return a
	}
	return b
}

// tell runs the story and checks its result.
func (s *story) tell(w *world, p prompt) {
	for span, happens := range s.at {
		done := false
		w.at(span, func(replica string) {
			if !done || s.always {
				done = true
				happens(w, w.by(replica))
			}
		})
	}
	third := s.at["third event"]
	got := w.ask(p, func(event int) {
		if event == 3 && third != nil {
			third(w, nil)
		}
	})
	switch s.code {
	case 0:
		w.exact(p, got)
	case clientGone:
		if got.err == nil {
			w.t.Errorf("the client got all of %d %q", got.status, got.raw)
		}
	default:
		w.failed(p, got, s.code)
	}
	if late := got.took - s.took; s.took > 0 && (late < 0 || late > s.within) {
		w.t.Errorf("took %v, want %v and at most %v more", got.took, s.took, s.within)
	}
	s.books(w)
}

// books checks the record at once, and the leases and blocks two seconds later.
func (s *story) books(w *world) {
	time.Sleep(2 * time.Second)
	rec := w.o.ring.Newest(2)
	if len(rec) != 1 {
		w.t.Fatalf("%d records of one request", len(rec))
	}
	kind, attempts := cmp.Or(s.kind, rec[0].Outcome), cmp.Or(s.attempts, 1)
	if s.code == 0 {
		kind = "ok"
	}
	if rec[0].Outcome != kind || rec[0].Attempts != attempts && rec[0].Attempts != 0 {
		w.t.Errorf("outcome %s after %d attempts, want %s after %d",
			rec[0].Outcome, rec[0].Attempts, kind, attempts)
	}
	if n := w.count("tandem_give_back_total", "freed"); n != s.back {
		w.t.Errorf("%d leases were given back, want %d", n, s.back)
	}
	if w.held() > 0 && !s.expires {
		holds := slices.DeleteFunc(w.all(), func(e *simulated) bool { return e.HeldBlocks() == 0 })
		w.t.Errorf("%s holds %d blocks after two seconds", holds[0].name, holds[0].HeldBlocks())
	}
}
