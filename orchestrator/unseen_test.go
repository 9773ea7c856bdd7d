package orchestrator

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// silent is the setup of one decode replica for two routers, with these peers.
func silent(peers []string) setup {
	return setup{prefill: 1, decode: 1, config: func(c *config.Config) {
		longAnswers(c)
		c.Routers.Peers = peers
	}}
}

// bothAsk keeps four requests of 3 s running at each of two routers, for this long. The returned function
// waits for the last answers.
func (w *world) bothAsk(during time.Duration) (ended func()) {
	var all sync.WaitGroup
	until := time.Now().Add(during)
	for i := range 8 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 350 * time.Millisecond)
			for time.Now().Before(until) {
				front := w.begin
				if i%2 == 1 {
					front = w.askBeside
				}
				if got := front(longPrompt(300)).end(); got.status != 200 {
					w.t.Errorf("%d %s", got.status, got.raw)
				}
			}
		})
	}
	time.Sleep(during)
	return all.Wait
}

// othersAt reports whether a router shows that its decode replica has requests of other clients.
func othersAt(o *Orchestrator, w *world) bool {
	for _, x := range o.fleet.Watchers() {
		for _, m := range x.Members() {
			if string(m.ID) == w.d[0].addr && x.HasState(m.ID, fleet.StateOthers) {
				return true
			}
		}
	}
	return false
}

// Two routers for the same engines do not know each other. Each notices it within a minute, logs it once,
// and logs its end. Routers that know each other log nothing.
func TestRoutersThatDoNotKnowOfEachOtherNotice(t *testing.T) {
	for name, x := range map[string]struct {
		peers []string
		want  bool
	}{
		"silent": {nil, true},
		"peers":  {[]string{"http://admin:80", "http://admin-b:80"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := silent(x.peers)
			s.options = func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
			in(t, s, func(w *world) { noticed(t, w, x.want) })
			for level, text := range map[string]string{
				"WARN": "another router? set `routers.peers`", "INFO": `msg="replica state has ended"`,
			} {
				n := 0
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "level="+level) && strings.Contains(line, text) &&
						strings.Contains(line, "pool=decode") {
						n++
					}
				}
				if want := map[bool]int{true: 1}[x.want]; n != want {
					t.Errorf("%d log lines of level %s have %q, want %d:\n%s", n, level, text, want, log.String())
				}
			}
		})
	}
}

func noticed(t *testing.T, w *world, want bool) {
	b, stop := w.beside()
	defer stop()
	ended := w.bothAsk(time.Minute)
	if a, b := othersAt(w.o, w), othersAt(b, w); a != want || b != want {
		t.Errorf("the routers notice other requests: %v and %v, want %v", a, b, want)
	}
	if n := w.count("tandem_replica_requests_of_others", w.d[0].addr); n > 0 != want {
		t.Errorf("the metric shows %d requests of others, want some: %v", n, want)
	}
	if !w.o.Ready() {
		t.Error("a router is not ready because of other requests")
	}
	shown, err := json.Marshal(w.o.State().Status())
	if err != nil || strings.Contains(string(shown), `"requests_of_others"`) != want {
		t.Errorf("/debug/replicas: %v, %s", err, shown)
	}
	ended()
	time.Sleep(time.Minute)
	if othersAt(w.o, w) || othersAt(b, w) {
		t.Error("a router still shows other requests after they have ended")
	}
}

// mixed returns requests of every kind that makes an engine work.
func mixed() []prompt {
	list := func(more string) prompt {
		return post("/v1/completions", `{"model":"sim","max_tokens":200,"ignore_eos":true,`+more+`"prompt":[`+
			idPrompt(1, 120)+`,`+idPrompt(2, 90)+`,`+idPrompt(3, 60)+`]}`)
	}
	several := chat(false)
	several.body = strings.Replace(several.body, `"max_tokens":12`, `"max_tokens":150,"n":3`, 1)
	return []prompt{
		chat(true), longPrompt(300), long(chat(false)), several, list(""), list(`"n":4,`), responses(false),
		post("/tokenize", `{"model":"sim","prompt":"`+words(50)+`"}`),
		post("/v1/embeddings", `{"model":"sim","input":["`+words(9)+`","`+words(8)+`"]}`),
	}
}

// A single router never reports requests of other clients, under any traffic: bursts, several answers,
// lists of prompts and texts, long prompts in pieces, tokenize requests, and clients that leave. The
// engines have two ranks and sometimes fail, so that the router retries and sends canaries.
func TestARouterThatIsAloneSaysNothingOfOthers(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	asks := mixed()
	// Some runs use only a few kinds of requests, so that other kinds cannot hide their effect.
	rnd.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	asks = asks[:1+rnd.IntN(len(asks))]
	s := setup{prefill: 1 + rnd.IntN(2), decode: 1 + rnd.IntN(2), engine: twoRanks}
	s.config = func(c *config.Config) {
		longAnswers(c)
		c.Local = []string{config.LocalAuto, config.LocalNever, config.LocalAlways}[rnd.IntN(3)]
	}
	in(t, s, func(w *world) {
		var all sync.WaitGroup
		burst := 3 + rnd.IntN(20)
		for round := range 60 {
			for range rnd.IntN(burst) {
				p, leaves := asks[rnd.IntN(len(asks))], time.Duration(100+rnd.IntN(8000))*time.Millisecond
				all.Go(func() {
					x := w.begin(p)
					time.AfterFunc(leaves, x.leave)
					x.end()
				})
			}
			if round%10 == 3 {
				fail(503)(w, w.p[0])
				fault(enginesim.Fault{Kind: "cut_stream", After: 4})(w, w.d[0])
			}
			time.Sleep(time.Second)
			if n := w.count("tandem_replica_state", fleet.StateOthers); n != 0 {
				t.Errorf("seed %d: after %d s, %d replicas are shown with requests of others", seed, round, n)
				break
			}
		}
		all.Wait()
	})
}

// An unsplit list of prompts counts as one sequence for each prompt and answer.
func TestAListThatIsNotSplitIsCounted(t *testing.T) {
	in(t, setup{decode: 1, config: longAnswers}, func(w *world) {
		list := mixed()[5]
		x := w.begin(list)
		time.Sleep(time.Second)
		if n := w.o.decode.PeerLoads(time.Now())[0].Sequences; n != 3*4 {
			t.Errorf("3 prompts with 4 answers each count as %d sequences, want 12", n)
		}
		if got := x.end(); got.status != 200 {
			t.Errorf("%d %s", got.status, got.raw)
		}
	})
}
