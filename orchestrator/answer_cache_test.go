package orchestrator

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// remembering is the setup of a world with an answer cache.
func remembering(change ...func(*config.Config)) setup {
	return setup{config: func(c *config.Config) {
		c.AnswerCache.MemoryBytes = 8 << 20
		for _, f := range change {
			f(c)
		}
	}}
}

// answersKept moves every metric of the answer cache.
func answersKept(t *testing.T, m *moved) {
	in(t, remembering(), func(w *world) {
		query := chat(false)
		query.path += "?a=b"
		for _, p := range []prompt{chat(false), chat(false), query} {
			w.ask(p)
		}
		m.look(t, w.o)
		cfg := *w.cfg
		cfg.AnswerCache.MemoryBytes = 1
		cfg.AnswerCache.AnswerBytes = 1
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
		w.ask(chat(true))
		m.look(t, w.o)
	})
}

// computed returns how many generations the engines were asked for. A split request counts once.
func (w *world) computed() (n int) {
	for _, s := range w.posts(false) {
		if strings.HasPrefix(s.engine, "d") {
			n++
		}
	}
	return n
}

// fromCache sends p and checks the X-Cache header of the answer.
func (w *world) fromCache(p prompt, want string) *heard {
	w.t.Helper()
	got := w.ask(p)
	if cache := got.header.Get("X-Cache"); cache != want {
		w.t.Errorf("X-Cache %q, want %q (status %d, %v, %s)", cache, want, got.status, got.err, got.raw)
	}
	return got
}

// The second of two equal requests gets the first one's answer, byte for byte, without an engine.
func TestSameQuestionIsAnsweredOnce(t *testing.T) {
	for name, p := range map[string]prompt{
		"completion": completion(false), "completion stream": completion(true),
		"chat": chat(false), "chat stream": chat(true),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, remembering(), func(w *world) {
				first := w.fromCache(p, "MISS")
				w.exact(p, first)
				n := w.computed()
				time.Sleep(3 * time.Second)
				again := w.fromCache(p, "HIT")
				w.exact(p, again)
				if again.raw != first.raw {
					t.Errorf("got %q, want %q as the first time", again.raw, first.raw)
				}
				if age := again.header.Get("Age"); age != "3" {
					t.Errorf("age %q, want 3", age)
				}
				if got, want := again.header.Get("Content-Type"), first.header.Get("Content-Type"); got != want {
					t.Errorf("content type %q, want %q as the first time", got, want)
				}
				if more := w.computed() - n; more != 0 {
					t.Errorf("engines computed %d more answers, want 0", more)
				}
				time.Sleep(config.Default().AnswerCache.TTL)
				w.fromCache(p, "MISS")
			})
		})
	}
}

// Without an answer cache there is no X-Cache header, and engines compute every request.
func TestWithoutAnswerCacheEveryRequestIsComputed(t *testing.T) {
	in(t, setup{}, func(w *world) {
		for range 2 {
			w.fromCache(chat(false), "")
		}
		if n := w.computed(); n != 2 {
			t.Errorf("%d computations of 2 requests", n)
		}
	})
}

// Requests with an answer that is not certain to repeat, or that may not be kept, bypass the cache.
func TestWhatIsNotForTheAnswerCache(t *testing.T) {
	in(t, remembering(), func(w *world) {
		plain := chat(false)
		with := func(member string) prompt {
			p := plain
			p.body = strings.Replace(p.body, `"temperature":0,`, member, 1)
			return p
		}
		noStore := plain
		noStore.header = http.Header{"Cache-Control": {"max-age=5, No-Store"}}
		query := plain
		query.path += "?a=b"
		for why, p := range map[string]prompt{
			"not_deterministic": with(""),
			"several":           with(`"temperature":0,"n":2,`),
			"tools":             with(`"temperature":0,"tools":[{"type":"function","function":{"name":"f"}}],`),
			"unknown_field":     with(`"temperature":0,"of_tomorrow":1,`),
			"unknown_model":     {path: plain.path, body: strings.Replace(plain.body, `"sim"`, `"other"`, 1)},
			"no_store":          noStore,
			"query":             query,
		} {
			for range 2 {
				w.fromCache(p, "BYPASS")
			}
			if n := w.count("tandem_answer_cache_bypassed_total", why); n != 2 {
				t.Errorf("%s was counted %d times, want 2", why, n)
			}
		}
		seeded := with(`"seed":7,`)
		w.fromCache(seeded, "BYPASS")
	})
	in(t, remembering(func(c *config.Config) { c.AnswerCache.Seeded = true }), func(w *world) {
		p := chat(false)
		p.body = strings.Replace(p.body, `"temperature":0,`, `"temperature":0.7,"seed":7,`, 1)
		w.fromCache(p, "MISS")
		w.fromCache(p, "HIT")
		p.body = strings.Replace(p.body, `"seed":7`, `"seed":8`, 1)
		w.fromCache(p, "MISS")
	})
}

// A client can ask for a new answer, or limit the age of a stored one.
func TestClientsSayHowOldAnAnswerMayBe(t *testing.T) {
	in(t, remembering(), func(w *world) {
		asking := func(control string) prompt {
			p := chat(false)
			p.header = http.Header{"Cache-Control": {control}}
			return p
		}
		w.fromCache(asking(""), "MISS")
		time.Sleep(5 * time.Second)
		w.fromCache(asking("max-age=9"), "HIT")
		w.fromCache(asking("max-age=4"), "MISS") // the new answer is kept
		w.fromCache(asking("max-age=4"), "HIT")
		w.fromCache(asking("no-cache"), "MISS")
		w.fromCache(asking("max-age=0"), "MISS")
		w.fromCache(asking("max-age=soon"), "MISS")
		w.fromCache(asking("something=else"), "HIT")
	})
}

// A tenant never gets another tenant's answer: neither another API key nor another cache salt matches. A
// wrong API key is still refused.
func TestTenantsDoNotShareAnswers(t *testing.T) {
	keys := func(c *config.Config) {
		c.APIKeys = []config.Secret{{Value: "of-a"}, {Value: "of-b"}}
	}
	in(t, remembering(keys), func(w *world) {
		asking := func(key, salt string) prompt {
			p := chat(false)
			if salt != "" {
				p.body = strings.Replace(p.body, `{`, `{"cache_salt":"`+salt+`",`, 1)
			}
			p.header = http.Header{"Authorization": {"Bearer " + key}}
			return p
		}
		w.fromCache(asking("of-a", ""), "MISS")
		w.fromCache(asking("of-a", ""), "HIT")
		w.fromCache(asking("of-b", ""), "MISS")
		w.fromCache(asking("of-a", "s"), "MISS")
		w.fromCache(asking("of-a", "t"), "MISS")
		w.fromCache(asking("of-a", "s"), "HIT")
		if got := w.fromCache(asking("of-nobody", ""), ""); got.status != http.StatusUnauthorized {
			t.Errorf("status %d with a wrong key, want 401", got.status)
		}
	})
}

// Computations for the cache teach answer lengths too, under the tenant of the client that asked.
func TestComputationsAreInTheNameOfWhoAsked(t *testing.T) {
	in(t, remembering(), func(w *world) {
		p := chat(true)
		p.header = http.Header{"Authorization": {"Bearer of-a"}}
		w.fromCache(p, "MISS")
		for _, g := range w.o.planner.Learned(time.Now()).Lengths {
			if g.Of == "tenant" && g.Tenant == tenantOf("of-a") {
				return
			}
		}
		t.Error("no answer length was learned for the tenant")
	})
}

// Answers of an engine process are not served after its restart: the engine may serve another model then.
func TestAnswersEndWithTheirEngine(t *testing.T) {
	restart := func(w *world) {
		for _, e := range append(w.p, w.d...) {
			if err := e.Fault(enginesim.Fault{Kind: "restart"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(15 * time.Second)
	}
	in(t, remembering(), func(w *world) {
		w.fromCache(chat(false), "MISS")
		w.fromCache(chat(false), "HIT")
		restart(w)
		w.fromCache(chat(false), "MISS")
		w.fromCache(chat(false), "HIT")
	})
	in(t, remembering(func(c *config.Config) { c.AnswerCache.OutliveEngines = true }), func(w *world) {
		w.fromCache(chat(false), "MISS")
		restart(w)
		w.fromCache(chat(false), "HIT")
	})
}

// The cache keeps no errors, no answers that broke off, and none with an unknown finish reason.
func TestFailuresAreNotKept(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
	said := func(reason string) string {
		return `{"id":"a","choices":[{"index":0,"message":{"content":"x"},"delta":{"content":"x"},` +
			`"finish_reason":` + reason + `}]}`
	}
	s := remembering(func(c *config.Config) { c.Retry.Attempts, c.Retry.Continue = 1, config.ContinueOff })
	s.decode = 1
	for name, tt := range map[string]struct {
		p      prompt
		answer string
	}{
		"error":   {chat(false), "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}"},
		"refusal": {chat(true), "HTTP/1.1 400 Oops\r\nContent-Length: 2\r\n\r\n{}"},
		"cut":     {chat(true), head + "text/event-stream\r\n\r\ndata: " + said("null") + "\n\n"},
		"error event": {chat(true), head + "text/event-stream\r\n\r\ndata: " + said("null") +
			"\n\n" + `data: {"error":{"message":"m","code":500}}` + "\n\ndata: [DONE]\n\n"},
		"aborted": {chat(false), head + "application/json\r\n\r\n" + said(`"abort"`)},
		"aborted stream": {chat(true), head + "text/event-stream\r\n\r\ndata: " + said(`"abort"`) +
			"\n\ndata: [DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, s, func(w *world) {
				w.wire.scripted(w.d[0].addr, tt.answer)
				w.fromCache(tt.p, "MISS")
				time.Sleep(10 * time.Second)
				w.exact(tt.p, w.fromCache(tt.p, "MISS"))
				w.exact(tt.p, w.fromCache(tt.p, "HIT"))
			})
		})
	}
}

// A thousand equal requests at once cause one computation and get the same bytes.
func TestEqualRequestsAtOnceAreOneComputation(t *testing.T) {
	for name, p := range map[string]prompt{"whole": chat(false), "stream": chat(true)} {
		t.Run(name, func(t *testing.T) {
			in(t, remembering(), func(w *world) {
				const clients = 1000
				var all sync.WaitGroup
				got := make([]*heard, clients)
				for i := range clients {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Microsecond) // some arrive after the first content
						got[i] = w.ask(p)
					})
				}
				all.Wait()
				w.exact(p, got[0])
				for i, h := range got {
					if h.raw != got[0].raw || h.status != 200 {
						t.Fatalf("client %d got status %d, %q, the first %q", i, h.status, h.raw, got[0].raw)
					}
				}
				if n := w.computed(); n != 1 {
					t.Errorf("%d computations, want 1", n)
				}
			})
		})
	}
}

// A computation whose client leaves continues for the other listeners. It ends when no listener is left.
func TestComputationGoesOnWhileAnybodyListens(t *testing.T) {
	in(t, remembering(), func(w *world) {
		p := chat(true)
		first := make(chan *heard)
		var leaveFirst func()
		go func() {
			first <- w.ask(p, func(n int) {
				if n == 3 {
					leaveFirst()
				}
			})
		}()
		time.Sleep(10 * time.Millisecond)
		w.mid.mu.Lock()
		leaveFirst = w.leave
		w.mid.mu.Unlock()
		second := w.fromCache(p, "HIT")
		if h := <-first; h.dones > 0 {
			t.Fatal("the first client did not leave")
		}
		w.exact(p, second)
		if n := w.computed(); n != 1 {
			t.Errorf("%d computations, want 1", n)
		}
	})
	in(t, remembering(), func(w *world) {
		p := chat(true)
		w.ask(p, func(n int) {
			if n == 3 {
				w.leave()
			}
		})
		time.Sleep(time.Second)
		for _, e := range w.d {
			if n := e.OpenRequests(); n > 0 {
				t.Errorf("%s still works on %d requests without a listener", e.name, n)
			}
		}
		w.fromCache(p, "MISS")
	})
}

// If a shared computation fails, each listener gets an answer of its own computation.
func TestFailureIsNobodyElses(t *testing.T) {
	s := remembering(func(c *config.Config) { c.Retry.Attempts = 1 })
	s.decode = 1
	in(t, s, func(w *world) {
		p := chat(false)
		// only for the first request
		w.wire.scripted(w.d[0].addr, "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")
		var all sync.WaitGroup
		got := make([]*heard, 3)
		for i := range got {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				got[i] = w.ask(p)
			})
		}
		all.Wait()
		if got[0].status != 400 {
			t.Errorf("the first got status %d, want the engine's 400", got[0].status)
		}
		w.exact(p, got[1])
		w.exact(p, got[2])
	})
}

// A reload can turn the cache off and on, and change its size, while it is in use.
func TestAnswerCacheIsReloaded(t *testing.T) {
	in(t, remembering(), func(w *world) {
		apply := func(bytes config.Bytes) {
			cfg := *w.cfg
			cfg.AnswerCache.MemoryBytes = bytes
			if err := w.o.Apply(&cfg); err != nil {
				t.Fatal(err)
			}
		}
		w.fromCache(chat(false), "MISS")
		apply(4 << 20)
		w.fromCache(chat(false), "HIT")
		apply(0)
		w.fromCache(chat(false), "")
		apply(4 << 20)
		w.fromCache(chat(false), "MISS")
		w.fromCache(chat(false), "HIT")
	})
}

// Answers above the size limit reach all listeners but are not kept.
func TestLongAnswersAreNotKept(t *testing.T) {
	in(t, remembering(func(c *config.Config) { c.AnswerCache.AnswerBytes = 1 << 10 }), func(w *world) {
		p := chat(true)
		for range 2 {
			w.exact(p, w.fromCache(p, "MISS"))
		}
		if n := w.count("tandem_answer_cache_unkept_total", "too_large"); n != 2 {
			t.Errorf("counted %d answers as too large, want 2", n)
		}
	})
}

// While the replicas of a model differ in version, tokenizer or revision, its requests bypass the cache:
// nobody knows which replica's answer a client would get.
func TestMixedModelsAreNotCached(t *testing.T) {
	for name, differs := range map[string]struct {
		engine   func(o *enginesim.Options)
		revision string
	}{
		"version":   {func(o *enginesim.Options) { o.Version = "0.31.0" }, ""},
		"tokenizer": {func(o *enginesim.Options) { o.Wrong.Tokenizer = "another" }, ""},
		"revision":  {func(*enginesim.Options) {}, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			s := remembering(func(c *config.Config) {
				c.Local = config.LocalAuto
				c.Pools.Decode.Replicas[1].Revision = differs.revision
			})
			s.engine = func(name string, o *enginesim.Options) {
				if name == "d1" {
					differs.engine(o)
				}
			}
			in(t, s, func(w *world) {
				w.fromCache(chat(false), "BYPASS")
				if n := w.count("tandem_answer_cache_bypassed_total", "mixed_models"); n != 1 {
					t.Errorf("counted %d times, want 1", n)
				}
			})
		})
	}
}
