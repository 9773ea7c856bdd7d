package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kv"
)

// trial is the result of a prompt that is new to the engine.
type trial struct {
	prompt []kv.Token
	salt   string

	first, second, salted answer
	err                   error // why there are not three answers

	size   int // tokens a block as its events say; 0: its blocks were not announced
	depth  int // leading blocks that Tandem's index gives the engine in time for the second sending
	late   int // the same at the end
	byRoot int // leading blocks of the salted prompt found under its salt
	// Leading blocks of the salted prompt found under its salt before it was sent; anything but 0 is a mix-up.
	crossed int
}

// answer is one completion's.
type answer struct {
	status       int
	body         string // where status is not 200
	promptTokens int
	cached       int  // -1: the engine does not say
	orca         bool // it reported its load in a header
	orcaUnclear  bool // it did, and the report says nothing
}

const (
	guessedBlock = 128  // tokens a block if unknown: the largest default
	trialTokens  = 1024 // about, at most; one block where blocks are larger
	// Behind the last full block, so that a hit of all blocks is possible: the last token is always computed.
	tailTokens = 5
)

// try sends the prompt, waits for its blocks, sends it again, and once more with a cache salt.
func (r *rank) try(ctx context.Context) *trial {
	t := &trial{prompt: r.newPrompt(), salt: fmt.Sprintf("tandem-doctor-%x", rand.Uint64())}
	l := r.link
	r.s.fleet.prompts.add(t.prompt)
	if t.first, t.err = r.complete(ctx, t.prompt, ""); t.err != nil {
		return t
	}
	if self := r.replica(); !self.Facts.KeepsNoPrefixes() { // there would be nothing to wait for
		t.await(ctx, l, "")
	}
	t.depth, t.crossed = t.found(l, ""), t.found(l, t.salt)
	if t.second, t.err = r.complete(ctx, t.prompt, ""); t.err != nil {
		return t
	}
	if t.salted, t.err = r.complete(ctx, t.prompt, t.salt); t.err != nil {
		return t
	}
	if t.size > 0 {
		t.await(ctx, l, t.salt)
		t.byRoot = t.found(l, t.salt)
	}
	t.late = t.found(l, "")
	return t
}

// newPrompt makes a few full blocks and a tail, of ids that are in every vocabulary. Two prompts differ from
// the first token on, or nearly so.
func (r *rank) newPrompt() []kv.Token {
	size := r.likelySize()
	n := size*max(1, min(4, trialTokens/size)) + tailTokens
	if limit := r.s.seen.model.MaxModelLen; limit > 0 {
		n = min(n, limit-2)
	}
	ids := make([]kv.Token, max(n, 1))
	for i := range ids {
		ids[i] = kv.Token(10 + rand.IntN(90))
	}
	return ids
}

func (r *rank) likelySize() int {
	if sizes := r.link.sizes(); len(sizes) > 0 {
		return slices.Max(sizes)
	}
	if n := r.s.seen.series.scrape.Ranks[r.n].Cache.BlockSize; n > 0 {
		return n
	}
	return guessedBlock
}

// complete asks for one token of the prompt.
func (r *rank) complete(ctx context.Context, prompt []kv.Token, salt string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	body := map[string]any{"model": r.s.seen.model.ID, "prompt": prompt, "max_tokens": 1, "temperature": 0}
	if salt != "" {
		body["cache_salt"] = salt
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	req := r.completion(raw)
	req.Header = append(req.Header, engine.Field{Key: engine.ORCARequest, Value: "TEXT"})
	resp, err := r.s.client.Do(ctx, req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Close()
	reply, err := resp.ReadAll(1 << 20)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp, reply)
}

func readAnswer(resp *engine.Response, reply []byte) (answer, error) {
	a := answer{status: resp.Status, cached: -1}
	if a.status != http.StatusOK {
		a.body = string(reply[:min(len(reply), 300)])
		return a, fmt.Errorf("a completion of one token was answered %d: %s", a.status, a.body)
	}
	var body struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(reply, &body); err != nil {
		return a, fmt.Errorf("the answer to a completion: %w", err)
	}
	a.promptTokens = body.Usage.Prompt
	if d := body.Usage.Details; d != nil {
		a.cached = d.Cached
	}
	if value := resp.Header.Get(engine.ORCAResponse); value != "" {
		_, a.orca = engine.ParseORCA(value)
		a.orcaUnclear = !a.orca
	}
	return a, nil
}

// await returns when all full blocks of the prompt are known, or when that takes too long.
func (t *trial) await(ctx context.Context, l *link, salt string) {
	if l == nil || l.err != nil {
		return
	}
	wait := time.NewTimer(eventTime)
	defer wait.Stop()
	for {
		if depth := t.found(l, salt); t.size > 0 && depth == len(t.prompt)/t.size {
			return
		}
		select {
		case <-l.news:
		case <-l.done:
			return
		case <-wait.C:
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// found asks an index of Tandem's own, fed with the events, how many leading blocks of the prompt under salt
// the engine has. It learns the block size from the event that begins the prompt.
func (t *trial) found(l *link, salt string) int {
	events := l.all()
	if t.size == 0 {
		t.size = learnSize(events, t.prompt)
	}
	chain := kv.NewChain("doctor", t.size)
	keys := chain.Append(nil, chain.Root("", salt), t.prompt)
	if len(keys) == 0 {
		return 0
	}
	index := kv.NewIndex(kv.Options{Chain: chain})
	for i := range events {
		index.Apply(0, &events[i])
	}
	depth := make([]int32, 1)
	index.Match(keys, depth)
	return int(depth[0])
}

// learnSize finds the event that begins the prompt, and returns its tokens a block; 0: there is none.
func learnSize(events []kv.Batch, prompt []kv.Token) int {
	for i := range events {
		for j := range events[i].Events {
			if ev := &events[i].Events[j]; ev.Kind == kv.Stored && !ev.HasParent && ev.BlockSize > 0 &&
				begins(prompt, ev.Tokens) {
				return ev.BlockSize
			}
		}
	}
	return 0
}

// begins reports whether tokens are the first ones of prompt.
func begins(prompt, tokens []kv.Token) bool {
	return len(tokens) > 0 && len(tokens) <= len(prompt) && slices.Equal(prompt[:len(tokens)], tokens)
}
