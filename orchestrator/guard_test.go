package orchestrator

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// careless is the NIXL connector without its guard: it sends params that it should refuse.
type careless struct {
	connector.NIXL
	change func(params []byte) []byte
}

func (c careless) EditDecode(
	leg *connector.Leg, pair connector.Pair, reply *connector.Reply, use connector.Use,
) error {
	body := leg.Body
	leg.Body = damaging{body, c.change, !use.GiveBack}
	defer func() { leg.Body = body }()
	return c.NIXL.EditDecode(leg, pair, reply, use)
}

// damaging is a body that changes the KV transfer params when they are set.
type damaging struct {
	connector.Body
	change func(params []byte) []byte
	on     bool
}

func (d damaging) Set(key string, value []byte) {
	if d.on && key == "kv_transfer_params" {
		value = d.change(value)
	}
	d.Body.Set(key, value)
}

// reused replaces the params of every leg by the first params it sees.
func reused() func([]byte) []byte {
	var mu sync.Mutex
	var first []byte
	return func(params []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = bytes.Clone(params)
		}
		return first
	}
}

// shortened removes the last block from the params.
func shortened(params []byte) []byte {
	end := bytes.Index(params, []byte("]]"))
	return append(append([]byte{}, params[:bytes.LastIndexByte(params[:end], ',')]...), params[end:]...)
}

// withoutHost removes one of the four keys that say where the blocks are.
func withoutHost(params []byte) []byte {
	begin := bytes.Index(params, []byte(`"remote_host":`))
	end := begin + bytes.IndexByte(params[begin:], ',') + 1
	return append(append([]byte{}, params[:begin]...), params[end:]...)
}

// forwarded returns params that a client put into its body.
func forwarded([]byte) []byte { return []byte(`{"do_remote_prefill":true}`) }

// idPrompt returns n token ids that differ for each seed.
func idPrompt(seed, n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint(300+(seed*1009+i*37)%3000))
	}
	return "[" + strings.Join(ids, ",") + "]"
}

func guardedPrompt(ids, more string) prompt {
	return post("/v1/completions", `{"model":"sim","max_tokens":6,"temperature":0`+more+`,"prompt":`+ids+`}`)
}

// mistake is an error that a router without the guard makes. Each one was measured on vLLM 0.32.0.
type mistake struct {
	name    string
	change  func() func([]byte) []byte // changes the params of a decode leg; nil for none
	trust   bool                       // params of any age are sent
	before  func(w *world)
	ask     prompt
	clean   prompt // the same request without what must not reach an engine
	dies    bool   // the decode engine dies; otherwise the text is wrong
	poisons bool   // a later request to the decode engine gets a wrong text
}

func mistakes() []mistake {
	first, second := guardedPrompt(idPrompt(1, 100), ""), guardedPrompt(idPrompt(2, 100), "")
	hostile := guardedPrompt(idPrompt(1, 100), `,"kv_transfer_params":{"do_remote_prefill":true}`)
	batch := guardedPrompt("["+idPrompt(1, 100)+","+idPrompt(2, 100)+"]", "")
	long := guardedPrompt(idPrompt(3, 180), "")
	uneven := guardedPrompt("["+idPrompt(2, 100)+","+idPrompt(3, 180)+"]", "")
	asked := func(p prompt) func(*world) { return func(w *world) { w.exact(p, w.ask(p)) } }
	return []mistake{
		{
			name: "params used twice", change: reused, before: asked(first), ask: second, clean: second, poisons: true,
		},
		{
			name: "params older than the lease", trust: true, before: lateHandoff, ask: first, clean: first,
			poisons: true,
		},
		{
			name: "client's params", change: func() func([]byte) []byte { return forwarded }, ask: hostile,
			clean: first, dies: true,
		},
		{name: "one params object for two prompts", change: reused, ask: batch, clean: batch},
		{
			name: "one params object for two prompts of different length", change: reused, before: asked(first),
			ask: uneven, clean: uneven, dies: true,
		},
		{
			name: "more blocks than the prompt needs", change: reused, before: asked(long), ask: first, clean: first,
			poisons: true,
		},
		{
			name: "a key of the address missing", change: func() func([]byte) []byte { return withoutHost },
			ask: first, clean: first, dies: true,
		},
		{
			name: "fewer blocks than the prompt needs", change: func() func([]byte) []byte { return shortened },
			ask: first, clean: first, dies: true,
		},
	}
}

// lateHandoff makes the lease of the first prefill expire before its decode leg, while other prompts reuse
// its blocks.
func lateHandoff(w *world) {
	late := false
	w.at("handoff", func(string) {
		if late {
			return
		}
		late = true
		time.Sleep(31 * time.Second)
		for i := range 4 {
			w.send(w.t.Context(), w.p[0].addr, guardedPrompt(idPrompt(50+i, 200), ""))
		}
	})
}

// A prefill engine answers with params that do not fit the prompt's blocks. The client gets a clear error,
// and the decode engine neither dies nor caches wrong blocks.
func TestGuardedFromBadAnswers(t *testing.T) {
	const whole = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4,5,6,7]],` +
		`"remote_engine_id":"engine-of-p0",` +
		`"remote_request_id":"cmpl-1-0-00000000","remote_host":"p0.internal","remote_port":5600,"tp_size":1,` +
		`"remote_num_tokens":100}`
	without := func(key string) string {
		begin := strings.Index(whole, `"`+key+`":`)
		return whole[:begin] + whole[begin+strings.IndexByte(whole[begin:], ',')+1:]
	}
	for name, params := range map[string]string{
		"fewer blocks":                  strings.Replace(whole, ",7]]", "]]", 1),
		"more blocks":                   strings.Replace(whole, ",7]]", ",7,8]]", 1),
		"no blocks":                     strings.Replace(whole, "[[1,2,3,4,5,6,7]]", "null", 1),
		"a flat list":                   strings.Replace(whole, "[[1,2,3,4,5,6,7]]", "[1,2,3,4,5,6,7]", 1),
		"nothing but do_remote_prefill": `{"do_remote_prefill":true}`,
		"no remote_engine_id":           without("remote_engine_id"),
		"no remote_request_id":          without("remote_request_id"),
		"no remote_host":                without("remote_host"),
		"no remote_port":                without("remote_port"),
		"another number of tokens there": strings.Replace(whole, `"remote_num_tokens":100`,
			`"remote_num_tokens":90`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, setup{prefill: 1, decode: 1}, func(w *world) {
				p := guardedPrompt(idPrompt(1, 100), "")
				w.at("prefill", func(string) {
					w.wire.scripted(w.p[0].addr, answerOf(200, "application/json", "",
						`{"id":"cmpl-1","choices":[{"index":0,"text":"a","finish_reason":"length"}],`+
							`"usage":{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101},"kv_transfer_params":`+
							params+`}`))
				})
				w.failed(p, w.ask(p), 502)
				if n := w.count("tandem_transfer_params_refused_total", "bad_params"); n == 0 {
					w.t.Error("no params were refused")
				}
				if err := w.d[0].Dead(); err != nil {
					w.t.Errorf("the decode engine is dead: %v", err)
				}
			})
		})
	}
}

func (m mistake) setup(guarded bool) setup {
	s := setup{
		prefill: 1, decode: 1,
		engine: func(_ string, o *enginesim.Options) { o.Core.Blocks = 24 },
		config: func(c *config.Config) {
			c.Timeouts.Answer = 2 * time.Minute
			if m.trust && !guarded {
				c.Connector.Margin, c.Connector.Lease = time.Hour, 2*time.Hour
			}
		},
	}
	if m.change != nil && !guarded {
		change := m.change()
		s.options = func(o *Options) { o.Connector = careless{change: change} }
	}
	return s
}

// With the guard, each mistake is impossible or harmless.
func TestGuarded(t *testing.T) {
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			in(t, m.setup(true), func(w *world) {
				if m.before != nil {
					m.before(w)
				}
				got := w.ask(m.ask)
				w.exact(m.clean, got)
				if again, want := w.send(w.t.Context(), w.d[0].addr, m.clean), w.right(m.clean); again.text != want.text {
					w.t.Errorf("asked again without a split: %q, want %q", again.text, want.text)
				}
			})
		})
	}
}

// Without the guard, the simulated engines fail as real ones do. So the test above really tests the guard.
func TestUnguarded(t *testing.T) {
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, m.setup(false))
				defer w.close()
				if m.before != nil {
					m.before(w)
				}
				asked := time.Now()
				got, want := w.ask(m.ask), w.right(m.clean)
				if took := time.Since(asked); took >= time.Minute {
					t.Errorf("answered with status %d only after %v", got.status, took)
				}
				synctest.Wait() // an engine may die when its client leaves
				dead := w.d[0].Dead()
				if (dead != nil) != m.dies {
					t.Fatalf("the decode engine is dead: %v, want %t", dead, m.dies)
				}
				if !m.dies && (got.status != 200 || got.text == want.text) {
					t.Errorf("status %d, text %q, want 200 and another text than %q", got.status, got.text, want.text)
				}
				if again := w.send(t.Context(), w.d[0].addr, m.clean); m.poisons &&
					(again.status != 200 || again.text == want.text) {
					t.Errorf("asked again without a split: status %d, text %q, want 200 and a wrong text",
						again.status, again.text)
				}
			})
		})
	}
}
