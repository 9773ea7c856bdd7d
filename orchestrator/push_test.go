package orchestrator

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// pushing is a setup whose engines push.
func pushing(s setup) setup {
	engine, change := s.engine, s.config
	s.engine = func(name string, o *enginesim.Options) {
		if o.Core.Push = true; engine != nil {
			engine(name, o)
		}
	}
	s.config = func(c *config.Config) {
		if c.Connector.Type = config.NIXLPush; change != nil {
			change(c)
		}
	}
	return s
}

// freed wants no block to be held on a decode engine after a rescue, and one rescue at least.
func (w *world) freed(result string) {
	w.t.Helper()
	time.Sleep(3 * time.Second)
	if n := w.count("tandem_rescues_total", result); n == 0 {
		w.t.Errorf("no rescue with the result %q", result)
	}
	for _, d := range w.d {
		if n := d.HeldBlocks(); n != 0 {
			w.t.Errorf("%s holds %d blocks after the rescue", d.name, n)
		}
	}
}

// vLLM's cut of the random end of an id.
var randomEnd = regexp.MustCompile(`-[0-9a-fA-F]{8}$`)

// Completions and chats, streamed and not, are answered exactly by pushed blocks. Both legs of a pair take
// one path under one id, which no other pair has, and which vLLM cuts nothing off.
func TestPushIsExact(t *testing.T) {
	in(t, pushing(setup{}), func(w *world) {
		used := map[string]int{}
		for i, p := range []prompt{
			completion(false), completion(true), chat(false), chat(true), nthChat(1, true), nthChat(2, false),
		} {
			if i%2 == 0 { // the id of a client is none for engines, which would pair its requests
				p.header = map[string][]string{"X-Request-Id": {"same-deadbeef"}}
			}
			w.wire.forget()
			w.exact(p, w.ask(p))
			legs := w.posts(false)
			if len(legs) != 2 || legs[0].path != p.path || legs[1].path != p.path ||
				!strings.HasPrefix(legs[0].engine, "p") || !strings.HasPrefix(legs[1].engine, "d") {
				t.Fatalf("%s: legs %+v", p.path, legs)
			}
			one, two := legs[0].header.Get("X-Request-Id"), legs[1].header.Get("X-Request-Id")
			if one == "" || one != two || randomEnd.MatchString("cmpl-"+one) {
				t.Errorf("ids %q and %q", one, two)
			}
			used[one]++
			chats := strings.Contains(p.path, "chat")
			for _, leg := range legs {
				if strings.Contains(leg.body, "prompt_token_ids") != chats {
					t.Errorf("%s of %s: %s", leg.path, leg.engine, leg.body)
				}
			}
		}
		if len(used) != 6 {
			t.Errorf("ids were used again: %v", used)
		}
		pushed := uint64(0)
		for _, p := range w.p {
			pushed += p.Stats()[0].NixlTransfers
		}
		if pushed < 6 {
			t.Errorf("%d prompts were pushed: the answers are exact for another reason", pushed)
		}
		if n := w.count("tandem_rescues_total", ""); n != 0 {
			t.Errorf("%d rescues of healthy requests", n)
		}
	})
}

// A chat is split only where both engines take the ids of its prompt: vLLM's decode engine hangs or answers
// wrongly when its own prompt has another length. Other APIs are not split.
func TestPushSplitsChatsByIDsOnly(t *testing.T) {
	for _, version := range []string{"0.26.0", ""} {
		old := func(_ string, o *enginesim.Options) { o.Version = version }
		in(t, pushing(setup{prefill: 1, decode: 1, engine: old}), func(w *world) {
			asked, modes := []prompt{completion(true), chat(true)}, []string{"split", "unsplit"}
			if version == "" {
				asked = append(asked, responses(true), messages(false))
				modes = []string{"split", "split", "unsplit", "unsplit"}
			}
			for i, p := range asked {
				w.exact(p, w.ask(p))
				if r := w.o.ring.Newest(1)[0]; r.Mode != modes[i] {
					t.Errorf("vLLM %q: %s is %s, want %s", version, r.Path, r.Mode, modes[i])
				}
			}
		})
	}
}

// strand makes the decode leg of the next request wait for ever: the lease of its prompt ends on the way.
func (w *world) strand() {
	lease := func(long time.Duration) {
		for _, p := range w.p {
			fault(enginesim.Fault{Kind: "lease", For: long})(w, p)
		}
	}
	lease(time.Millisecond)
	done := false
	w.at("decode", func(string) {
		if !done {
			done = true
			time.Sleep(50 * time.Millisecond)
			lease(w.cfg.Connector.Lease)
		}
	})
}

// The lease of a prompt ends before its decode leg comes, and that leg waits for ever. When its first byte is
// late, the router has the prompt prefilled once more, on the same path under the same id. The waiting leg
// gets these blocks, and answers exactly.
func TestPushRescuesAWaitingLeg(t *testing.T) {
	for _, p := range []prompt{completion(true), chat(true), completion(false), chat(false)} {
		in(t, pushing(setup{}), func(w *world) {
			w.strand()
			got := w.ask(p)
			w.exact(p, got)
			w.freed("prefilled")
			legs := w.posts(false)
			if len(legs) != 3 || legs[2].engine != legs[0].engine || legs[2].path != p.path ||
				legs[2].header.Get("X-Request-Id") != legs[1].header.Get("X-Request-Id") || legs[2].body != legs[0].body {
				t.Errorf("legs %+v", legs)
			}
			if n := w.o.ring.Newest(1)[0].Attempts; n != 1 || got.took > firstByteBy(w.cfg)+time.Second {
				t.Errorf("%d attempts, %v", n, got.took)
			}
		})
	}
}

// The prefill engine is another process when the first byte is late: nobody can free the blocks of the
// waiting leg. The router ends the leg, says so, and answers by another pair, with another id.
func TestPushGivesUpWhatNobodyCanRescue(t *testing.T) {
	for _, p := range []prompt{completion(true), chat(false)} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, pushing(setup{}))
			defer w.close()
			w.strand()
			later(time.Second, func(w *world, _ *simulated) {
				asked := w.by(w.posts(false)[0].engine + ".internal:8000")
				fault(enginesim.Fault{Kind: "restart", For: time.Second})(w, asked)
			})(w, nil)
			w.exact(p, w.ask(p))
			if n := w.count("tandem_rescues_total", "restarted") + w.count("tandem_rescues_total", "failed"); n == 0 {
				t.Error("no rescue has failed: the test shows nothing")
			}
			held := 0
			for _, d := range w.d {
				held += d.HeldBlocks()
			}
			if held == 0 {
				t.Error("no block is held: the simulator is kinder than vLLM")
			}
			ids := map[string]bool{}
			for _, leg := range w.posts(false) {
				if strings.HasPrefix(leg.engine, "d") {
					ids[leg.header.Get("X-Request-Id")] = true
				}
			}
			if len(ids) < 2 {
				t.Errorf("the decode legs have the ids %v", ids)
			}
		})
	}
}

// The client leaves while its decode leg waits for blocks.
func TestPushRescuesWhenTheClientLeaves(t *testing.T) {
	for _, p := range []prompt{completion(false), chat(true)} {
		in(t, pushing(setup{}), func(w *world) {
			w.strand()
			later(2*time.Second, func(w *world, _ *simulated) { w.leave() })(w, nil)
			if got := w.ask(p); got.status == 200 {
				t.Errorf("answered: %+v", got)
			}
			w.freed("prefilled")
		})
	}
}

// killsPrefillBeforeDecode kills the first prefill engine that gets a leg, when the decode leg is sent.
func (w *world) killsPrefillBeforeDecode() {
	killed := false
	w.at("decode", func(string) {
		if killed {
			return
		}
		killed = true
		at := w.by(w.posts(false)[0].engine + ".internal:8000")
		fault(enginesim.Fault{Kind: "restart", For: 5 * time.Second})(w, at)
	})
}

// The prefill engine is killed between the legs. The decode engine cannot tell it of its blocks, and says so.
// Another pair answers.
func TestPushOfAKilledPrefillEngine(t *testing.T) {
	for _, p := range []prompt{completion(true), chat(false)} {
		in(t, pushing(setup{}), func(w *world) {
			w.killsPrefillBeforeDecode()
			w.exact(p, w.ask(p))
			time.Sleep(3 * time.Second)
			for _, d := range w.d {
				if n := d.HeldBlocks(); n != 0 {
					t.Errorf("%s holds %d blocks", d.name, n)
				}
			}
		})
	}
}

// A leg 2 that is too old is not sent.
func TestPushSendsNoLateLeg(t *testing.T) {
	in(t, pushing(setup{}), func(w *world) {
		late := 0
		w.at("handoff", func(string) {
			if late++; late == 1 {
				time.Sleep(w.cfg.Connector.Margin + time.Second)
			}
		})
		w.exact(completion(true), w.ask(completion(true)))
		if n := w.count("tandem_transfer_params_refused_total", "expired"); n != 1 {
			t.Errorf("%d refused as expired, want 1", n)
		}
	})
}

// An answer of a prefill engine without tp_size would end the decode engine.
func TestPushRefusesMissingTPSize(t *testing.T) {
	in(t, pushing(setup{}), func(w *world) {
		n := w.right(completion(false)).usage.Prompt
		more := strings.Repeat(",1", (n-1)/w.o.fleet.Any("sim", nil).Member.Facts.BlockSize)
		params := `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1` + more + `]],` +
			`"remote_engine_id":"e",` +
			`"remote_request_id":"r","remote_host":"h","remote_port":5600,"transfer_mode":"push"}`
		body := fmt.Sprintf(`{"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":%d},`+
			`"kv_transfer_params":%s}`, n, params)
		for _, p := range w.p {
			w.wire.scripted(p.addr, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body))
		}
		_ = w.ask(completion(false))
		for _, d := range w.d {
			if d.Dead() != nil {
				t.Errorf("%s died: %v", d.name, d.Dead())
			}
		}
		if n := w.count("tandem_transfer_params_refused_total", "bad_params"); n == 0 {
			t.Error("nothing was refused: the test shows nothing")
		}
	})
}

// The engines of the configured connector are named by its errors.
func TestPushNamesItsFlag(t *testing.T) {
	s := pushing(setup{})
	usual := s.engine
	s.engine = func(name string, o *enginesim.Options) {
		if usual(name, o); strings.HasPrefix(name, "p") {
			o.Core.Push = false
		}
	}
	in(t, s, func(w *world) {
		w.failed(completion(false), w.ask(completion(false)), 502)
		if n := w.count("tandem_transfer_params_refused_total", "foreign"); n == 0 {
			t.Error("a pulling engine is not foreign")
		}
	})
	if connector.Named(config.NIXLPush, connector.Ports{}).Traits().Engines != "NixlPushConnector" {
		t.Error("the flag")
	}
}
