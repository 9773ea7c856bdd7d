package orchestrator

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// long returns p with a prompt of about 2,100 tokens.
func long(p prompt) prompt {
	p.body = strings.Replace(p.body, words(120), words(900), 1)
	return p
}

// inPieces is the setup of a world with decode replicas that compute all prompts, in the smallest pieces.
func inPieces(more func(*config.Config)) setup {
	return setup{config: func(c *config.Config) {
		c.Local, c.Scoring.PrefillPiece = config.LocalAlways, 10*time.Millisecond
		if more != nil {
			more(c)
		}
	}}
}

// sentPiece is the body of a request for one piece.
type sentPiece struct {
	Model     string
	Prompt    []uint32
	MaxTokens int    `json:"max_tokens"`
	Salt      string `json:"cache_salt"`
}

// pieces returns the pieces that engines got, and the request after them.
func (w *world) pieces() (all []sentPiece, last sent) {
	w.t.Helper()
	posts := w.posts(false)
	if len(posts) == 0 {
		w.t.Fatal("no engine got anything")
	}
	for _, s := range posts[:len(posts)-1] {
		var p sentPiece
		if err := json.Unmarshal([]byte(s.body), &p); err != nil || s.path != "/v1/completions" {
			w.t.Errorf("a piece to %s: %v", s.path, err)
		}
		all = append(all, p)
	}
	return all, posts[len(posts)-1]
}

// A long prompt that a decode replica computes itself is sent as growing prefixes of whole blocks, and
// then as the client sent it. The answer and its reported cached tokens do not change.
func TestLongLocalPromptsComeInPieces(t *testing.T) {
	for _, p := range []prompt{chat(true), chat(false), completion(true), completion(false)} {
		p = long(p)
		p.body = strings.Replace(p.body, `"max_tokens"`, `"cache_salt":"pepper","max_tokens"`, 1)
		t.Run(fmt.Sprint(p.path, strings.Contains(p.body, "stream")), func(t *testing.T) {
			in(t, inPieces(nil), func(w *world) {
				got := w.ask(p)
				w.exact(p, got)
				all, last := w.pieces()
				if last.path != p.path || !strings.Contains(last.body, words(900)) {
					t.Errorf("the request itself did not come last: %s", last.path)
				}
				if len(all) == 0 {
					t.Fatal("no pieces")
				}
				before := 0
				for _, x := range all {
					n := len(x.Prompt)
					if x.Model != "sim" || x.MaxTokens != 1 || x.Salt != "pepper" || n%16 != 0 || n <= before {
						t.Errorf("piece of %d tokens after %d, max_tokens %d, model %q, salt %q",
							n, before, x.MaxTokens, x.Model, x.Salt)
					}
					before = n
				}
				if got.usage.Details.Cached != 0 {
					t.Errorf("the client sees %d cached tokens, want 0", got.usage.Details.Cached)
				}
				if n := w.count("tandem_prefill_pieces_total", pieceComputed); n != len(all) {
					t.Errorf("counted %d pieces of %d", n, len(all))
				}
				if row := w.o.admin.Live().Newest[0]; row.Pieces != len(all) {
					t.Errorf("the page shows %d pieces of %d", row.Pieces, len(all))
				}
				rec := w.o.ring.Newest(1)[0]
				if rec.Pieces != len(all) || rec.Delivered > 0 || rec.Whole != "" {
					t.Errorf("the record has %d pieces of %d, %d cached tokens, and the reason %q",
						rec.Pieces, len(all), rec.Delivered, rec.Whole)
				}
			})
		})
	}
}

// The engine computes each piece once: the request itself finds all pieces in the cache.
func TestTheRequestFindsItsPieces(t *testing.T) {
	s := inPieces(nil)
	s.decode = 1
	in(t, s, func(w *world) {
		p := long(completion(true))
		w.exact(p, w.ask(p))
		all, _ := w.pieces()
		page, tokens := w.send(w.t.Context(), w.d[0].addr, prompt{path: "/metrics", method: "GET"}).raw, 0
		for _, x := range all {
			tokens += len(x.Prompt)
		}
		found := regexp.MustCompile(`(?m)^vllm:prefix_cache_hits_total.* (\S+)$`).FindStringSubmatch(page)
		if len(found) < 2 || found[1] != fmt.Sprintf("%d.0", tokens) {
			t.Errorf("%q tokens were found in the cache, want %d: each piece by the next one", found, tokens)
		}
	})
}

// An engine may have cached more of a prompt than the router knows. The client gets the full number of
// cached tokens, as without pieces.
func TestPiecesHideNothingOfTheCache(t *testing.T) {
	for name, had := range map[string]int{"all": 900, "the beginning": 500, "a little": 100, "nothing": 0} {
		t.Run(name, func(t *testing.T) {
			s := inPieces(nil)
			s.decode = 1
			in(t, s, func(w *world) {
				p := long(completion(true))
				if had > 0 {
					earlier := p
					earlier.body = strings.Replace(p.body, words(900), words(had), 1)
					for _, e := range []*simulated{w.d[0], w.whole} {
						w.send(w.t.Context(), e.addr, earlier)
					}
				}
				want := w.send(w.t.Context(), w.whole.addr, p).usage.Details.Cached
				got := w.ask(p)
				all, _ := w.pieces()
				if got.usage.Details.Cached != want || len(all) == 0 {
					t.Errorf("the client sees %d cached tokens in %d pieces, want %d",
						got.usage.Details.Cached, len(all), want)
				}
				if rec := w.o.ring.Newest(1)[0]; rec.Delivered != want {
					t.Errorf("the record has %d cached tokens, want %d", rec.Delivered, want)
				}
			})
		})
	}
}

// Some prompts are sent whole: prompts with unknown token ids, prompts that must not be split, and short
// prompts. All prompts are sent whole if the engine has no prefix cache or if pieces are turned off. The
// record says why.
func TestWhatIsNotSentInPieces(t *testing.T) {
	noCache := inPieces(nil)
	noCache.engine = func(_ string, o *enginesim.Options) { o.Core.NoPrefixCaching = true }
	logprobs := long(completion(false))
	logprobs.body = strings.Replace(logprobs.body, `"max_tokens"`, `"prompt_logprobs":1,"max_tokens"`, 1)
	for name, c := range map[string]struct {
		setup
		prompt
		why string
	}{
		"no prefix caching": {noCache, long(chat(true)), "its replica keeps no prefixes, as far as is known"},
		"never": {
			inPieces(func(c *config.Config) { c.Scoring.PrefillPiece = 0 }), long(chat(true)), "pieces are turned off",
		},
		"text": {
			inPieces(func(c *config.Config) { c.Tokenizer.Source = config.TokensNone }), long(chat(true)),
			"its token ids are not known",
		},
		"a short one":             {inPieces(nil), chat(true), "shorter than prefill_piece"},
		"not read from the cache": {inPieces(nil), logprobs, "prompt_logprobs"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, c.setup, func(w *world) {
				if got := w.ask(c.prompt); got.status != 200 {
					t.Errorf("%d %s", got.status, got.raw)
				}
				if all, _ := w.pieces(); len(all) > 0 {
					t.Errorf("%d pieces", len(all))
				}
				synctest.Wait() // until the record is written
				if why := w.o.ring.Newest(1)[0].Whole; !strings.Contains(why, c.why) {
					t.Errorf("the record has the reason %q, want %q", why, c.why)
				}
			})
		})
	}
}

// brokenPieces are tests in which pieces fail. The request itself follows.
var brokenPieces = []story{
	{name: "a piece is answered with an error", at: map[string]trouble{"piece": fail(503)}},
	{name: "a piece is refused", at: map[string]trouble{"piece": fail(400)}},
	{name: "its connection breaks", at: map[string]trouble{"piece": reset}},
	{
		name: "it is no answer",
		at:   map[string]trouble{"piece": says(answerOf(200, "application/json", "", "{]"))},
	},
	{
		name: "it is cut short",
		at:   map[string]trouble{"piece": says("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")},
	},
	{name: "it counts other tokens", at: map[string]trouble{"piece": says(prefilled(7, "null"))}},
	{name: "the replica vanishes", at: map[string]trouble{"piece": vanish}, attempts: 2},
	{name: "it hangs", at: map[string]trouble{"piece": hang}, code: 504},
	{name: "the client leaves", at: map[string]trouble{"piece": leave}, code: clientGone, kind: "client_gone"},
	{
		name: "the client leaves in the middle", at: map[string]trouble{"piece": later(5*time.Millisecond, leave)},
		code: clientGone, kind: "client_gone",
	},
	{name: "the replicas leave the pool", at: map[string]trouble{"piece": reload}},
}

func TestBrokenPieces(t *testing.T) {
	for _, s := range brokenPieces {
		for _, p := range []prompt{long(chat(true)), long(completion(false))} {
			t.Run(s.name+p.path, func(t *testing.T) {
				if s.code == 504 {
					s.kind = map[bool]string{true: "timeout", false: "answer_timeout"}[p.path == chat(true).path]
				}
				in(t, inPieces(nil), func(w *world) { s.tell(w, p) })
			})
		}
	}
}

// The pieces of several prompts on one replica take turns. All answers are the same as without the other
// prompts.
func TestPiecesTakeTurns(t *testing.T) {
	s := inPieces(nil)
	s.decode = 1
	in(t, s, func(w *world) {
		prompts := []prompt{long(chat(true)), long(completion(false)), long(completion(true)), chat(true)}
		var asked []*pending
		for i, p := range prompts {
			p.body = strings.Replace(p.body, "word0 word7", fmt.Sprintf("word%d word9", i), 1)
			prompts[i] = p
			asked = append(asked, w.begin(p))
			time.Sleep(3 * time.Millisecond)
		}
		for i, p := range prompts {
			w.exact(p, asked[i].end())
		}
		waited := 0
		for _, r := range w.o.ring.Newest(len(prompts)) {
			if r.Phases.Turn > r.Phases.Prefill {
				t.Errorf("a prefill of %v ms waited %v ms for others", r.Phases.Prefill, r.Phases.Turn)
			}
			if r.Phases.Turn >= 1 {
				waited++
			}
		}
		if waited == 0 {
			t.Error("no record shows a wait for other prompts")
		}
		if n := w.count("tandem_prefill_pieces_total", pieceComputed); n < 6 {
			t.Errorf("%d pieces of three prompts", n)
		}
	})
}

// More prompts wait for their turns than the replica can compute within the limit for a first token. The
// router refuses those that would be too late. The replica works all the time, so it is not blamed.
func TestNobodyIsBlamedForTurns(t *testing.T) {
	s := inPieces(nil)
	s.decode = 1
	in(t, s, func(w *world) {
		var asked []*pending
		for i := range 150 {
			p := long(chat(true))
			p.body = strings.Replace(p.body, "word0 word7", fmt.Sprintf("word%d word9", i), 1)
			asked = append(asked, w.begin(p))
			time.Sleep(3 * time.Millisecond)
		}
		answered, late := 0, 0
		for _, a := range asked {
			switch got := a.end(); {
			case got.status == 200:
				answered++
			case got.status == 429 && got.header.Get("Retry-After") != "":
				late++
			default:
				t.Errorf("%d %s", got.status, got.raw)
			}
		}
		if answered < 50 || late < 20 {
			t.Errorf("%d requests were answered and %d were too late: this tests too little", answered, late)
		}
		if n := w.count("tandem_attempt_failures_total", ""); n > 0 {
			t.Errorf("%d failures count against the replica, want 0", n)
		}
		if n := w.count("tandem_ejections_total", ""); n > 0 {
			t.Error("the replica was ejected")
		}
	})
}
