package orchestrator

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// pending is a request that runs in another goroutine.
type pending struct {
	heard chan *heard
	leave context.CancelFunc
}

func (w *world) begin(p prompt) *pending {
	ctx, leave := context.WithCancel(w.t.Context())
	out := &pending{make(chan *heard, 1), leave}
	w.mid.mu.Lock()
	w.asked++
	w.mid.mu.Unlock()
	go func() {
		defer leave()
		out.heard <- w.send(ctx, "front:80", p)
	}()
	return out
}

// get sends a GET to the front or the admin listener.
func (w *world) get(host, path string) *heard {
	return w.send(w.t.Context(), host+":80", prompt{method: "GET", path: path})
}

func (p *pending) end() *heard { return <-p.heard }

// fullForLong is the expected number of output tokens where a replica has to stay full for long.
const fullForLong = 8000

// narrow is the setup of one pair with a decode replica that has room for one request at a time.
func narrow(change func(*config.Config)) setup {
	return setup{
		prefill: 1, decode: 1,
		config: func(c *config.Config) {
			c.Scoring.ExpectedOutput = fullForLong
			if change != nil {
				change(c)
			}
		},
		engine: func(name string, o *enginesim.Options) {
			if name == "d0" {
				o.Core.Blocks = 30
			}
		},
	}
}

// refused checks that the router itself answered 429 with a Retry-After header.
func (w *world) refused(p prompt, got *heard, after time.Duration) {
	w.t.Helper()
	w.failed(p, got, 429)
	if n, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || n < 1 {
		w.t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	if got.took != after {
		w.t.Errorf("refused after %v, want %v", got.took, after)
	}
}

func TestRequestsWaitForRoomInTurn(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		var all []*pending
		for range 4 {
			all = append(all, w.begin(chat(true)))
			time.Sleep(time.Millisecond)
		}
		for i, r := range all {
			got := r.end()
			w.exact(chat(true), got)
			began := time.Duration(i) * time.Millisecond
			if least := time.Duration(i) * (transfer + 12*decodeStep); got.took+began < least {
				t.Errorf("request %d ended after %v, but it cannot have had room before %v", i, got.took+began, least)
			}
		}
	})
}

func TestNoRoomWithinTheQueueDeadline(t *testing.T) {
	in(t, narrow(func(c *config.Config) { c.Timeouts.Queue = 100 * time.Millisecond }), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(false))
		w.refused(chat(false), second.end(), 100*time.Millisecond)
		w.exact(chat(true), first.end())
		w.exact(chat(false), w.ask(chat(false)))
	})
}

func TestQueueIsFull(t *testing.T) {
	in(t, narrow(func(c *config.Config) { c.Limits.Queue = 1 }), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		w.refused(chat(true), w.ask(chat(true)), 0)
		w.exact(chat(true), first.end())
		w.exact(chat(true), second.end())
	})
}

// A request is refused at once if its first token would come too late. Requests before it are not
// affected.
func TestTooLateIsRefusedAtOnce(t *testing.T) {
	s := slowPair(30 * time.Second)
	s.config = func(c *config.Config) {
		c.Limits.FirstToken = 200 * time.Millisecond
		c.Experimental.Scoring.Speed = config.Speed{Prefill: 1000, Local: 1000, Decode: 100}
	}
	in(t, s, func(w *world) {
		first := guardedPrompt(idPrompt(1, 150), "") // 150 ms at the configured speed
		begun := w.begin(first)
		time.Sleep(time.Millisecond)
		second := guardedPrompt(idPrompt(2, 150), "")
		w.refused(second, w.ask(second), 0)
		w.exact(first, begun.end())
		w.exact(second, w.ask(second))
		if n := w.count("tandem_refused_total", "too_late"); n != 1 {
			w.t.Errorf("counted %d refusals, want 1", n)
		}
	})
}

// A waiting request is refused as soon as its first token can no longer come in time.
func TestTooLateIsRefusedInTheQueue(t *testing.T) {
	limit := func(c *config.Config) { c.Limits.FirstToken = 100 * time.Millisecond }
	in(t, narrow(limit), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		var late []*pending
		for range 5 {
			late = append(late, w.begin(chat(false)))
		}
		for _, one := range late {
			w.refused(chat(false), one.end(), 100*time.Millisecond)
		}
		if n := w.count("tandem_refused_total", "too_late"); n != 5 {
			t.Errorf("counted %d refusals, want 5", n)
		}
		w.exact(chat(true), first.end())
		w.exact(chat(false), w.ask(chat(false)))
	})
}

func TestClientLeavesTheQueue(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		second := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		third := w.begin(completion(false))
		time.Sleep(20 * time.Millisecond)
		second.leave()
		time.Sleep(time.Millisecond)
		if n := w.o.queue.length(); n != 1 {
			t.Errorf("%d requests wait, want only the third", n)
		}
		w.exact(chat(true), first.end())
		w.exact(completion(false), third.end())
		if got := second.end(); got.err == nil {
			t.Errorf("the client that left heard %q", got.raw)
		}
		if n := w.count("tandem_requests_total", "client_gone"); n != 1 {
			t.Errorf("the metric counts %d clients that left, want 1", n)
		}
	})
}

func TestTooManyInFlight(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Limits.InFlight, c.Limits.Queue = 1, 1 }}, func(w *world) {
		first := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		w.refused(chat(true), w.ask(chat(true)), 0)
		w.exact(chat(true), first.end())
		w.exact(chat(true), w.ask(chat(true)))
	})
}

// A prompt that fits no replica is refused at once instead of queued.
func TestPromptIsTooLargeForEveryReplica(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		long := prompt{
			path: "/v1/completions", body: `{"model":"sim","max_tokens":2,"prompt":"` + words(300) + `"}`,
		}
		got := w.ask(long)
		if got.status != 400 || got.fail.Code != 400 || got.took != 0 {
			t.Errorf("%d %q after %v, want 400 at once", got.status, got.raw, got.took)
		}
		if !strings.Contains(got.raw, "This model's maximum context length is ") {
			t.Errorf("%q is not vLLM's message for a prompt beyond the context", got.raw)
		}
		w.silent(got)
	})
}

// An engine refuses a prompt as too long and names its number of tokens. The record has that number, as
// the client does. "At least N" is not used as a number.
func TestARefusedPromptHasTheEnginesLength(t *testing.T) {
	for says, want := range map[string]func(router int) int{
		"140":          func(int) int { return 140 },
		"at least 140": func(router int) int { return router },
	} {
		in(t, passing(config.LocalAlways), func(w *world) {
			p := completion(true)
			w.exact(p, w.ask(p))
			router := w.o.ring.Newest(1)[0].Prompt
			for _, d := range w.d {
				w.wire.scripted(d.addr, answerOf(400, "application/json", "", `{"error":{"message":"This model's `+
					`maximum context length is 100 tokens. However, your prompt contains `+says+` input tokens."}}`))
			}
			if got := w.ask(p); got.status != 400 {
				t.Fatalf("status %d: %s", got.status, got.raw)
			}
			if r := w.o.ring.Newest(1)[0]; r.Prompt != want(router) || r.Outcome != "status_400" {
				t.Errorf("engine says %s: the record has %d tokens, outcome %s; the router counted %d",
					says, r.Prompt, r.Outcome, router)
			}
		})
	}
}

// Two requests fail at once, and the retry budget allows one retry. A second later there is budget again.
func TestRetryBudget(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Retry.Share, c.Retry.Min = 0, 1 }}, func(w *world) {
		ills := 2
		w.at("prefill", func(at string) {
			w.mid.mu.Lock()
			ill := ills > 0
			ills--
			w.mid.mu.Unlock()
			if ill {
				fail(503)(w, w.by(at))
			}
		})
		first, second := w.begin(chat(true)), w.begin(chat(true))
		a, b := first.end(), second.end()
		if a.status != 200 {
			a, b = b, a
		}
		w.exact(chat(true), a)
		w.failed(chat(true), b, 503)
		time.Sleep(time.Second)
		ills = 1
		w.exact(chat(true), w.ask(chat(true)))
	})
}

// An unreachable replica has done no work, so retries after it are free: every request is retried
// elsewhere without a budget.
func TestUnreachableReplicaNeedsNoBudget(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Retry.Share, c.Retry.Min = 0, 0 }}, func(w *world) {
		vanish(w, w.p[0])
		var asked []*pending
		for range 6 {
			asked = append(asked, w.begin(chat(true)))
		}
		for _, a := range asked {
			w.exact(chat(true), a.end())
		}
	})
}

func TestReplicasVanishAndComeBack(t *testing.T) {
	for _, order := range []connector.Order{connector.Sequential, connector.Concurrent} {
		t.Run(order.String(), func(t *testing.T) {
			in(t, setup{order: order}, func(w *world) {
				vanish(w, w.p[0])
				vanish(w, w.d[1])
				for range 4 {
					w.exact(chat(true), w.ask(chat(true)))
				}
				time.Sleep(10 * time.Second)
				ready := w.get("front", "/readyz")
				if ready.status != 200 || strings.Count(ready.raw, `"ready": false`) != 2 ||
					!strings.Contains(ready.raw, "connection refused") {
					t.Errorf("readyz says %d %s", ready.status, ready.raw)
				}
				w.silent(ready)
				w.net.Refuse(w.p[0].addr, false)
				w.net.Refuse(w.d[1].addr, false)
				time.Sleep(15 * time.Second)
				vanish(w, w.p[1])
				vanish(w, w.d[0])
				w.exact(chat(true), w.ask(chat(true)))
			})
		})
	}
}

// A waiting request is refused at once when no replica is left that could get room: an engine takes longer
// to start than a request may wait.
func TestNobodyIsLeftToWaitFor(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		runs := w.begin(chat(true))
		time.Sleep(50 * time.Millisecond)
		waits := w.begin(chat(true))
		time.Sleep(10 * time.Millisecond)
		if n := w.o.queue.length(); n != 1 {
			t.Fatalf("%d requests wait, want 1", n)
		}
		vanish(w, w.d[0])
		runs.end()
		got := waits.end()
		w.failed(chat(true), got, 503)
		if got.took > time.Second || got.header.Get("Retry-After") == "" {
			t.Errorf("after %v, Retry-After %q", got.took, got.header.Get("Retry-After"))
		}
	})
}

func TestNobodyIsThere(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for _, e := range append(w.p, w.d...) {
			vanish(w, e)
		}
		time.Sleep(10 * time.Second)
		got := w.ask(chat(true))
		w.failed(chat(true), got, 503)
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		ready := w.get("front", "/readyz")
		if ready.status != 503 || !strings.Contains(ready.raw, "no decode replica is usable") ||
			!strings.Contains(ready.raw, "no prefill replica is usable") {
			t.Errorf("readyz says %d %s", ready.status, ready.raw)
		}
		w.silent(ready)
		admin := w.get("admin", "/readyz")
		if admin.status != 503 || !strings.Contains(admin.raw, "p0.internal:8000") {
			t.Errorf("the admin's readyz says %d %s", admin.status, admin.raw)
		}
	})
}

// During drain a running stream is finished, waiting and new requests are refused, and health checks fail.
func TestDrain(t *testing.T) {
	in(t, narrow(nil), func(w *world) {
		running := w.begin(chat(true))
		time.Sleep(time.Millisecond)
		waiting := w.begin(chat(false))
		time.Sleep(time.Millisecond)
		w.o.Drain()
		w.failed(chat(false), waiting.end(), 503)
		w.failed(chat(true), w.ask(chat(true)), 503)
		for _, path := range []string{"/healthz", "/readyz"} {
			if got := w.get("front", path); got.status != 503 {
				t.Errorf("%s says %d %s", path, got.status, got.raw)
			}
		}
		w.exact(chat(true), running.end())
	})
}

// During timeouts.unready, /readyz fails but requests are served, and each answer ends its connection.
// After that the front refuses connections, and streams have the drain time.
func TestUnready(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Timeouts.Unready = 4 * time.Second }}, func(w *world) {
		long := chat(true)
		running := w.begin(long)
		time.Sleep(time.Millisecond)
		w.stop()
		for _, stream := range []bool{false, true} {
			w.exact(chat(stream), w.ask(chat(stream)))
		}
		kept := &http.Client{Transport: &http.Transport{DialContext: w.net.Dial}}
		for _, p := range []prompt{chat(false), {method: http.MethodGet, path: "/v1/models"}} {
			w.asked++
			r, err := http.NewRequestWithContext(
				w.t.Context(), cmp.Or(p.method, http.MethodPost), "http://front:80"+p.path, strings.NewReader(p.body),
			)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := kept.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || !resp.Close {
				t.Errorf("%s: status %d, closes its connection: %v; want 200 and true",
					p.path, resp.StatusCode, resp.Close)
			}
		}
		for path, want := range map[string]int{"/readyz": 503, "/healthz": 200} {
			if got := w.get("front", path); got.status != want {
				t.Errorf("%s says %d, want %d: %s", path, got.status, want, got.raw)
			}
		}
		if got := w.get("admin", "/readyz"); got.status != 503 || !strings.Contains(got.raw, "shutting down") {
			t.Errorf("the admin's /readyz says %d %s", got.status, got.raw)
		}
		w.exact(long, running.end())
		time.Sleep(5 * time.Second)
		if resp, err := w.front.Get("http://front:80/healthz"); err == nil {
			resp.Body.Close()
			t.Errorf("the front is still open: %d", resp.StatusCode)
		}
	})
}

// A stream that exceeds the drain time ends with an error event that its client can read.
func TestDrainTimeIsOver(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Timeouts.Drain = 2 * time.Second }}, func(w *world) {
		long := chat(true)
		long.body = strings.Replace(long.body, `"max_tokens":12`, `"max_tokens":1000`, 1)
		running := w.begin(long)
		time.Sleep(time.Second)
		w.stop()
		got := running.end()
		w.failed(long, got, 503)
		if got.took != 3*time.Second {
			t.Errorf("the stream ended after %v, want 3 s", got.took)
		}
		time.Sleep(time.Second)
		if n := w.o.Leases(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

// A failed KV transfer can be the fault of either engine of the pair. So the retry avoids both, unless a
// pool has no other replica. Here the only decode replica is used again and prefills for itself.
func TestTransferFailsWhereThereIsOneOfEach(t *testing.T) {
	for _, gone := range []string{"transfers", "prefill"} {
		t.Run(gone, func(t *testing.T) {
			in(t, setup{prefill: 1, decode: 1, config: func(c *config.Config) {
				c.Local, c.Experimental.Scoring.Speed.Local = config.LocalAuto, 1 // the router splits if it can
			}}, func(w *world) {
				w.at("handoff", func(string) {
					if transferFails(0)(w, nil); gone == "prefill" {
						vanish(w, w.p[0])
					}
				})
				for _, stream := range []bool{false, true} {
					w.exact(chat(stream), w.ask(chat(stream)))
				}
				if rec := w.o.ring.Newest(2); rec[1].Attempts != 2 || rec[1].Mode != "local" {
					t.Errorf("%d attempts, the last one %s; want 2, local", rec[1].Attempts, rec[1].Mode)
				}
			})
		})
	}
}

// The only prefill replica is used again after the decode replica failed, together with another decode
// replica.
func TestDecodeFailsWhereThereIsOnePrefill(t *testing.T) {
	in(t, setup{prefill: 1, decode: 2}, func(w *world) {
		ill := true
		w.at("decode", func(at string) {
			if ill {
				fail(500)(w, w.by(at))
			}
			ill = false
		})
		w.exact(chat(true), w.ask(chat(true)))
		if rec := w.o.ring.Newest(1); rec[0].Attempts != 2 || rec[0].Mode != "split" {
			t.Errorf("%d attempts, the last one %s; want 2, split", rec[0].Attempts, rec[0].Mode)
		}
	})
}

// A request that waits for room for one model does not block a request for another model, even if that
// model does not exist.
func TestNobodyWaitsForRoomForAnotherModel(t *testing.T) {
	s := narrow(func(c *config.Config) { c.Scoring.ExpectedOutput = 12 })
	s.prefill, s.decode = 2, 2
	engine := s.engine
	s.engine = func(name string, o *enginesim.Options) {
		if engine(name, o); name == "d0" {
			o.Core.Blocks = 60
		}
		if strings.HasSuffix(name, "1") {
			o.Model = "other"
		}
	}
	in(t, s, func(w *world) {
		var all []*pending
		for range 900 {
			all = append(all, w.begin(chat(true)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Second) // longer than any request should wait
		if got := w.ask(adapted(completion(false), "none")); got.status != 404 || got.took != 0 {
			t.Errorf("a model that does not exist: %d after %v, want 404 at once", got.status, got.took)
		}
		alone := transfer + prefillStep + 15*decodeStep
		if n := w.o.queue.length(); n < 20 {
			t.Errorf("only %d requests still wait: this tests too little", n)
		}
		if got := w.ask(adapted(completion(false), "other")); got.status != 200 || got.took > alone {
			t.Errorf("a model with room: %d after %v, want an answer within %v", got.status, got.took, alone)
		}
		for _, r := range all {
			w.exact(chat(true), r.end())
		}
	})
}
