package orchestrator

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/openai"
)

// greedy is a request for a stream that can be continued, with n tokens and further members in its body.
func greedy(path string, n int, more string) prompt {
	what := `"prompt":"` + words(120) + `"`
	if path != "/v1/completions" {
		what = `"messages":[{"role":"user","content":"` + words(120) + `"}]`
	}
	return prompt{
		path: path,
		body: fmt.Sprintf(`{"model":"sim","max_tokens":%d,"temperature":0,"stream":true,%s%s}`, n, more, what),
	}
}

// dies injects the n-th of these faults into the engine of the n-th decode leg from now on.
func (w *world) dies(faults ...enginesim.Fault) {
	var mu sync.Mutex // the prompts of a batch come here at the same time
	w.at("decode", func(at string) {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 {
			return
		}
		f := faults[0]
		faults = faults[1:]
		if f.Kind != "" {
			fault(f)(w, w.by(at))
		}
	})
}

var (
	ownID      = regexp.MustCompile(`"id":"(cmpl|chatcmpl)-[-0-9a-fr]+"`)
	ownCreated = regexp.MustCompile(`"created":\d+`)
	ownCache   = regexp.MustCompile(`cache(d)?_tokens":\d+`)
)

// said returns the stream without the parts that depend on the engine, the time and the cache.
func (h *heard) said() string {
	s := ownID.ReplaceAllString(h.raw, `"id":"$1"`)
	s = ownCreated.ReplaceAllString(s, `"created":0`)
	return ownCache.ReplaceAllString(s, `cache_tokens":0`)
}

// same checks that a stream equals the one of a single engine, byte for byte, and that all its events have
// one id and one creation time.
func (w *world) same(p prompt, got *heard) {
	w.t.Helper()
	want := w.right(p)
	if got.err != nil || got.said() != want.said() {
		i := 0
		a := got.said()
		b := want.said()
		for i < min(len(a), len(b)) && a[i] == b[i] {
			i++
		}
		w.t.Fatalf("error %v, %+v: from byte %d on\n%.400s\nwant\n%.400s\n%.100s",
			got.err, got.fail, i, a[max(0, i-120):], b[max(0, i-120):], p.body)
	}
	names := map[string]bool{}
	for _, re := range []*regexp.Regexp{ownID, ownCreated} {
		for _, name := range re.FindAllString(got.raw, -1) {
			names[name] = true
		}
	}
	if len(names) != 2 {
		w.t.Errorf("the stream has the ids and times %v, want one of each", names)
	}
	w.silent(got)
}

// bytewise makes engines generate mostly single bytes: characters of several tokens, and bytes that are no
// characters.
func bytewise(_ string, o *enginesim.Options) {
	o.Core.FirstToken, o.Core.Vocab = 8, 264+40
}

func ends(_ string, o *enginesim.Options) { o.Core.EOS, o.Core.EOSEvery = 1, 12 }

// endings are requests whose streams are cut after every event. Their names say what is special about
// them.
var endings = []struct {
	name   string
	path   string
	more   string
	stops  []int // start and end of each stop string in the answer's text
	tokens int   // output tokens; 0 means 12
	setup  setup
}{
	{name: "a chat", path: "/v1/chat/completions"},
	{name: "a completion", path: "/v1/completions"},
	{name: "usage", path: "/v1/chat/completions", more: `"stream_options":{"include_usage":true},`},
	{name: "usage of a completion", path: "/v1/completions", more: `"stream_options":{"include_usage":true},`},
	{
		name: "continuous usage", path: "/v1/completions",
		more: `"stream_options":{"include_usage":true,"continuous_usage_stats":true},`,
	},
	{
		name: "continuous usage of a chat", path: "/v1/chat/completions",
		more: `"stream_options":{"include_usage":true,"continuous_usage_stats":true},`,
	},
	{
		name: "a stop string over several tokens", path: "/v1/completions", stops: []int{31, 52},
		more: `"stream_options":{"include_usage":true},`,
	},
	{name: "stop strings in a chat", path: "/v1/chat/completions", stops: []int{40, 47, 44, 60}},
	{
		name: "a stop string that does not come", path: "/v1/chat/completions", stops: []int{10, 11},
		more: `"min_tokens":12,`,
	},
	{
		name: "a stop string that counts late", path: "/v1/completions", stops: []int{5, 7, 30, 34},
		more: `"min_tokens":6,`,
	},
	{
		name: "an included stop string", path: "/v1/completions", stops: []int{31, 52},
		more: `"include_stop_str_in_output":true,`,
	},
	{name: "bytes", path: "/v1/completions", tokens: 40, setup: setup{engine: bytewise}},
	{
		name: "bytes of a chat, and a stop string", path: "/v1/chat/completions", tokens: 40, stops: []int{12, 15},
		setup: setup{engine: bytewise},
	},
	{
		name: "an end of its own", path: "/v1/chat/completions", tokens: 60, setup: setup{engine: ends},
		more: `"stream_options":{"include_usage":true},`,
	},
	{name: "token ids for the client", path: "/v1/chat/completions", more: `"return_token_ids":true,`},
	{
		name: "token ids for the client, and a stop string", path: "/v1/completions",
		more: `"return_token_ids":true,`, stops: []int{31, 52},
	},
	{name: "not split", path: "/v1/chat/completions", setup: setup{config: alone}},
	{name: "a completion that is not split", path: "/v1/completions", setup: setup{config: alone}},
	{name: "nobody tells token ids before", path: "/v1/chat/completions", setup: setup{config: func(
		c *config.Config,
	) {
		c.Tokenizer.Source, c.Local = config.TokensNone, config.LocalAuto
	}}},
	{name: "both legs at once", path: "/v1/completions", setup: setup{order: connector.Concurrent}},
	{name: "one decode replica, which lives on", path: "/v1/completions", setup: setup{decode: 1}},
}

// unejected turns ejection off: the tests below break streams much more often than is usual.
func unejected(s setup) setup {
	before := s.config
	s.config = func(c *config.Config) {
		c.Health.Ejection.Failures = 0
		if before != nil {
			before(c)
		}
	}
	return s
}

// stopping returns p with stop strings from these places of its answer.
func (w *world) stopping(p prompt, places []int) prompt {
	if len(places) == 0 {
		return p
	}
	text := []rune(w.right(p).text)
	var stops []string
	for i := 0; i < len(places); i += 2 {
		from, to := places[i], min(places[i+1], len(text))
		if from >= to {
			w.t.Fatalf("the answer %q has no text from %d to %d", string(text), from, to)
		}
		stops = append(stops, fmt.Sprintf("%q", string(text[from:to])))
	}
	p.body = strings.Replace(p.body, `"stream":true,`, `"stream":true,"stop":[`+strings.Join(stops, ",")+`],`, 1)
	return p
}

// The decode engine breaks off after any number of events. The client still gets the stream of one engine.
func TestEveryEventMayBeTheLast(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			in(t, unejected(e.setup), func(w *world) {
				p := w.stopping(greedy(e.path, max(e.tokens, 12), e.more), e.stops)
				events := len(w.right(p).events)
				if events < 8 {
					t.Fatalf("the answer has %d events", events)
				}
				for k := 1; k <= events; k++ {
					w.dies(enginesim.Fault{Kind: "cut_stream", After: k})
					w.same(p, w.ask(p))
				}
				if got, want := w.count("tandem_continued_total",
					"continued")+w.count("tandem_continued_total", "complete"), events-2; got < want {
					t.Errorf("%d streams were continued, want at least %d", got, want)
				}
			})
		})
	}
}

// The same for up to three failures of random kinds at random events.
func TestBrokenStreamsByChance(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 18))
			e := endings[rnd.IntN(len(endings))]
			e.setup.decode = max(e.setup.decode, 1+rnd.IntN(3))
			in(t, unejected(e.setup), func(w *world) {
				p := w.stopping(greedy(e.path, max(e.tokens, 12), e.more), e.stops)
				for range 12 {
					var faults []enginesim.Fault
					for range 1 + rnd.IntN(3) {
						kind := []string{"cut_stream", "fail_stream", "stall_stream", ""}[rnd.IntN(4)]
						faults = append(faults, enginesim.Fault{Kind: kind, After: 2 + rnd.IntN(9)})
					}
					slices.SortFunc(faults, func(a, b enginesim.Fault) int { return len(b.Kind) - len(a.Kind) })
					w.dies(faults...)
					w.same(p, w.ask(p))
				}
			})
		})
	}
}

// A stream that cannot be continued ends once, with an error, as if there were no other replica.
func TestStreamsThatCannotGoOn(t *testing.T) {
	for _, c := range []struct{ name, more string }{
		{"two answers", `"n":2,"temperature":0.5,`},
		{"tools", `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",`},
		{"logprobs", `"logprobs":true,`},
		{"sampled", `"temperature":0.7,`},
		{"a field of tomorrow", `"tomorrow":1,`},
	} {
		in(t, setup{config: func(c *config.Config) { c.Local = config.LocalAuto }}, func(w *world) {
			p := greedy("/v1/chat/completions", 12, c.more)
			if strings.Contains(c.more, "temperature") { // replace the temperature of greedy
				p.body = strings.Replace(p.body, `"temperature":0,`, "", 1)
			}
			w.dies(enginesim.Fault{Kind: "cut_stream", After: 5})
			got := w.ask(p)
			if got.fail.Code != 502 || got.dones != 1 || w.count("tandem_continued_total", "") != 0 {
				t.Errorf("%s: error %+v, %d end marks, %q; want error 502 and 1 end mark",
					c.name, got.fail, got.dones, got.raw)
			}
			for _, leg := range w.posts(false) {
				if strings.Contains(leg.body, "return_token_ids") {
					t.Errorf("%s: the engine was asked for token ids: %s", c.name, leg.body)
				}
			}
		})
	}
}

func TestSampledStreamsGoOnIfConfigured(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Retry.Continue = config.ContinueAlways }}, func(w *world) {
		p := greedy("/v1/chat/completions", 12, "")
		p.body = strings.Replace(p.body, `"temperature":0`, `"temperature":0.7`, 1)
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 5})
		w.same(p, w.ask(p)) // the simulator samples the same tokens everywhere
	})
}

// Continuing after a failure of a replica that still works uses retry budget. After a dead replica it uses
// none.
func TestBudgetOfStreamsThatGoOn(t *testing.T) {
	in(t, setup{config: func(c *config.Config) { c.Retry.Share, c.Retry.Min = 0, 0 }}, func(w *world) {
		p := greedy("/v1/completions", 12, "")
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 5})
		w.failed(p, w.ask(p), 502)
		if n := w.count("tandem_continued_total", "no_budget"); n != 1 {
			t.Errorf("counted %d streams without budget, want 1", n)
		}
		var broken *simulated
		w.at("decode", func(at string) {
			if broken == nil {
				broken = w.by(at)
			}
		})
		got := w.ask(p, func(event int) {
			if event == 3 {
				vanish(w, broken)
			}
		})
		w.same(p, got)
		w.net.Refuse(broken.addr, false)
	})
}

// The limit for the first token of a continuation includes its queue and its prefill. If it ends during
// the decode leg, that decode replica is not to blame.
func TestARestThatBeginsLateIsNobodysFault(t *testing.T) {
	in(t, setup{config: func(c *config.Config) {
		c.Timeouts.DecodeFirst = time.Second
		c.Health.Ejection.Failures = 1
	}}, func(w *world) {
		p := greedy("/v1/completions", 12, "")
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 5})
		w.at("continue", func(string) {
			w.at("prefill", func(string) { time.Sleep(990 * time.Millisecond) })
		})
		w.failed(p, w.ask(p), 502)
		w.at("prefill", nil)
		if n := w.count("tandem_continued_total", "failed"); n != 1 {
			t.Errorf("counted %d failed continuations, want 1", n)
		}
		if n := w.count("tandem_ejections_total", ""); n != 1 {
			t.Errorf("%d ejections, want only the replica that broke off", n)
		}
	})
}

// All streams of a dead replica continue, whatever the budget.
func TestAllStreamsOfADeadReplicaGoOn(t *testing.T) {
	in(t, setup{decode: 2}, func(w *world) {
		const streams = 24
		p := greedy("/v1/chat/completions", 60, "")
		heards := make(chan *heard, streams)
		for range streams {
			go func() { heards <- w.ask(p) }()
		}
		time.Sleep(400 * time.Millisecond)
		vanish(w, w.d[0])
		for range streams {
			w.same(p, <-heards)
		}
		if n := w.count("tandem_continued_total", "continued"); n < 4 {
			t.Errorf("%d streams were continued, want at least 4", n)
		}
		w.net.Refuse(w.d[0].addr, false)
	})
}

// Each prompt of a batch continues by itself.
func TestBatchesGoOn(t *testing.T) {
	in(t, unejected(setup{}), func(w *world) {
		p := prompt{path: "/v1/completions", body: `{"model":"sim","max_tokens":12,"temperature":0,"stream":true,` +
			`"prompt":["` + words(60) + `","` + words(70) + `"]}`}
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 4}, enginesim.Fault{Kind: "cut_stream", After: 6})
		got, want := w.ask(p), w.right(p)
		if texts := byIndex(got); got.dones != 1 || got.fail.Message != "" ||
			fmt.Sprint(texts) != fmt.Sprint(byIndex(want)) {
			t.Errorf("%v, %+v\nwant %v", texts, got.fail, byIndex(want))
		}
		if n := w.count("tandem_continued_total", "continued"); n != 2 {
			t.Errorf("%d prompts were continued, want 2", n)
		}
	})
}

// An answer that has all tokens up to its limit, but no end, gets no further token.
func TestNothingGoesOnBeyondTheLimit(t *testing.T) {
	in(t, setup{}, func(w *world) {
		said := func(text, ids string) string {
			return strings.Replace(roleEvent, `"content":""},`, `"content":"`+text+`"},"token_ids":`+ids+`,`, 1)
		}
		role := strings.Replace(roleEvent, `"choices"`, `"prompt_token_ids":[1,2],"choices"`, 1)
		w.at("decode", func(at string) {
			w.at("decode", nil)
			w.wire.scripted(w.by(at).addr, streamOf(role, said("a", "[8]"), said("b", "[9]")))
		})
		got := w.ask(greedy("/v1/chat/completions", 2, ""))
		if got.text != "ab" || got.fail.Code != 502 || w.count("tandem_continued_total", "not_possible") != 1 {
			t.Errorf("the client got %q, %+v", got.text, got.fail)
		}
	})
}

// Streams that run while the router drains are finished, even if another replica has to continue them.
func TestStreamsGoOnWhileDraining(t *testing.T) {
	in(t, setup{}, func(w *world) {
		p := greedy("/v1/completions", 12, "")
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 5})
		got := w.ask(p, func(event int) {
			if event == 2 {
				w.stop()
			}
		})
		w.same(p, got)
	})
}

// The record of a continued stream names the replicas that continued it, and has the token count of the
// whole answer.
func TestRecordOfAContinuedStream(t *testing.T) {
	in(t, setup{}, func(w *world) {
		p := greedy("/v1/completions", 12, `"stream_options":{"include_usage":true},`)
		w.dies(enginesim.Fault{Kind: "cut_stream", After: 5}, enginesim.Fault{Kind: "fail_stream", After: 3})
		got := w.ask(p)
		w.same(p, got)
		rec := w.o.ring.Newest(3)
		if len(rec) != 1 || len(rec[0].Continued) != 2 || rec[0].Output != 12 || rec[0].Outcome != "ok" ||
			rec[0].Attempts != 1 {
			t.Errorf("records %+v", rec[0])
		}
		if !strings.Contains(got.raw, fmt.Sprintf(`"usage":{"prompt_tokens":%d,`, rec[0].Prompt)) {
			t.Errorf("the record has %d prompt tokens, the answer %s", rec[0].Prompt, got.raw)
		}
		var ids []string
		for _, leg := range w.posts(false) {
			ids = append(ids, strings.TrimPrefix(leg.header.Get("X-Request-Id"), got.header.Get("X-Request-Id")))
		}
		if want := []string{"", "", "-c1", "-c1", "-c2", "-c2"}; !slices.Equal(ids, want) {
			t.Errorf("legs with ids %q, want %q", ids, want)
		}
		if got.status != http.StatusOK {
			t.Errorf("status %d", got.status)
		}
	})
}

// A replica with other model files has other token ids, so it does not continue a stream.
func TestOtherTokensDoNotGoOn(t *testing.T) {
	in(t, setup{decode: 1}, func(w *world) {
		j := &job{
			env: &w.o.env, snapshot: w.o.snap.Load(),
			ids: &promptIDs{legIDs: legIDs{[]uint32{1}, []byte("[1]")}, exact: true},
		}
		j.req = parsed(t, `{"model":"sim","prompt":[1],"stream":true}`)
		d := w.o.fleet.Endpoints()[w.o.decode.Status(time.Now())[0].ID]
		if !j.goesOnAt(&d.Member) {
			t.Error("a replica of the same model cannot continue")
		}
		j.ids.of.Root = "/models/another"
		if j.goesOnAt(&d.Member) {
			t.Error("a replica with other model files may continue")
		}
	})
}

// byIndex returns the text of each choice of a stream.
func byIndex(h *heard) map[int]string {
	texts := map[int]string{}
	for _, data := range h.events {
		var c piece
		if json.Unmarshal([]byte(data), &c) == nil {
			for _, choice := range c.Choices {
				texts[choice.Index] += choice.Text
			}
		}
	}
	return texts
}

func parsed(t *testing.T, body string) *openai.Request {
	r, err := openai.Parse(openai.Completions, []byte(body), openai.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
