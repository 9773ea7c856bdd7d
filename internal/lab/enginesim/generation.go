package enginesim

import (
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// generation is the set of engine requests behind one HTTP request: one per prompt and choice, in the order
// of the answer's choices.
type generation struct {
	srv     *Server
	rank    *rank
	p       *params
	id      string // external id, with its prefix
	created int64
	sink    *sink
	seqs    []sequence
	open    int // sequences that have not ended
	over    int // surplus prompt tokens in usage
	got     []delivery
	closed  <-chan struct{}
	ending  generationEnd
}

// generationEnd is why a generation ended before it was complete.
type generationEnd struct {
	problem  *problem
	vanished bool // the client disconnected, or the process was cut: there is no client to answer
}

// sequence is one choice.
type sequence struct {
	internal string
	prompt   []uint32
	tokens   []uint32
	detok    detokenizer
	text     []byte
	sent     int // bytes of text that have been sent
	cached   int
	done     bool
	finished finish
	params   []byte // kv_transfer_params of the answer; nil: null
}

// finish is why a sequence ended.
type finish struct {
	reason string // finish_reason
	stop   string // stop_reason, if a stop string ended the sequence
	stopID uint32 // stop_reason, if a token ended it: byID
	byID   bool
}

// restarted ends the requests of a process that is gone. They get no answer.
var restarted = &problem{status: 0, message: "the process was restarted"}

// leg returns the leg of a split request, as faults name it.
func (p *params) leg() string {
	switch {
	case p.transfer == nil:
		return "plain"
	case bool(p.transfer.DoRemotePrefill):
		return "decode"
	case bool(p.transfer.DoRemoteDecode):
		return "prefill"
	}
	return "plain"
}

// begin checks the request and adds it to a core. If that fails, begin tells the request's peer to free the
// blocks.
func (s *Server) begin(k *call, p *params, prefix string) (*generation, *problem) {
	if s.o.Wrong.NoConnector || s.o.Store != nil && !s.o.Multi {
		p.transfer = nil // vLLM accepts the field and ignores its content
	}
	if bad := s.failsBefore(k, p); bad != nil {
		return nil, bad
	}
	if s.o.ForceUsage && p.stream && (p.at == atCompletions || p.at == atChat) {
		p.usage, p.continuous = true, true
	}
	g := &generation{srv: s, p: p, created: time.Now().Unix(), closed: k.c.gone}
	r, bad := s.rankOf(k, p)
	if bad == nil {
		g.rank = r
		bad = s.check(p)
	}
	if bad == nil {
		g.id = prefix + p.externalID()
		bad = g.submit()
	}
	if bad != nil {
		s.cleanUp(r, p)
		return nil, bad
	}
	g.failsLater(k)
	return g, nil
}

// failsBefore applies the faults that keep a request from the engine.
func (s *Server) failsBefore(k *call, p *params) *problem {
	if f, ok := s.faults.takeFor("fail", k.path, p.leg(), k.body); ok {
		if f.Body != "" { // the request's content made it fail, not the path to the server
			s.cleanUp(nil, p)
		}
		return &problem{status: f.Status, kind: "InternalServerError", message: "injected failure"}
	}
	if _, ok := s.faults.take("stall", k.path, p.leg()); ok {
		k.hang()
		return restarted
	}
	return nil
}

// failsLater applies the faults that show in the answer.
func (g *generation) failsLater(k *call) {
	s, p := g.srv, g.p
	if _, ok := s.faults.take("miscount", k.path, p.leg()); ok {
		g.over = 1
	}
	if f, ok := s.faults.take("cut_stream", k.path, p.leg()); ok {
		k.fault.cut = f.After
	}
	if f, ok := s.faults.take("stall_stream", k.path, p.leg()); ok {
		k.fault.cut, k.fault.silent = f.After, true
	}
	if f, ok := s.faults.take("fail_stream", k.path, p.leg()); ok {
		k.fault.cut, k.fault.fails = f.After, true
	}
}

// cleanUp is vLLM's rejection cleanup: params of a request that the API layer refuses go to the core, which
// tells P to free the blocks. /inference/v1/generate has no such cleanup, and neither has vLLM 0.20.
func (s *Server) cleanUp(r *rank, p *params) {
	if p.transfer == nil || !bool(p.transfer.DoRemotePrefill) || p.at == atGenerate ||
		!s.process.versionAtLeast(21) {
		return
	}
	if r == nil {
		r = s.cores.ranks[0]
	}
	t := *p.transfer
	r.reject(&t)
}

func (p *params) externalID() string {
	if p.requestID != "" {
		return p.requestID
	}
	return randomHex(16)
}

// submit adds every sequence to the core. If one fails, it aborts those that it has added.
func (g *generation) submit() *problem {
	p := g.p
	if p.logprobs >= 0 {
		g.srv.compile()
	}
	g.sink = newSink()
	g.seqs = make([]sequence, 0, len(p.prompts)*p.n)
	for i, prompt := range p.prompts {
		for choice := range p.n {
			if bad := g.addSequence(i, choice, prompt); bad != nil {
				g.abort()
				return bad
			}
		}
	}
	return nil
}

func (g *generation) addSequence(i, choice int, prompt []uint32) *problem {
	p, lora := g.p, g.srv.adapter(g.p.model)
	q := core.Request{
		ID: g.internalID(i, choice), Prompt: prompt,
		MaxTokens: min(max(p.maxTokens, 0), g.rank.cfg.MaxModelLen-len(prompt)), MinTokens: p.minTokens,
		StopIDs:   p.stopIDs,
		IgnoreEOS: p.ignoreEOS, Salt: p.salt, LoRA: lora.name, Weights: lora.weights(), Session: p.session,
		SkipReadCache: p.promptLog, Seed: p.seed,
	}
	if p.maxTokens < 0 && p.at == atCompletions {
		q.MaxTokens = min(16, g.rank.cfg.MaxModelLen-len(prompt))
	}
	if x := p.rare; x != nil {
		q.Bias = x.bias
		q.Allowed = x.allowed
		q.Scripts = p.scripts(g.srv.model.voc)
	}
	if choice == 0 {
		q.Choices = p.n
	}
	if p.n > 1 {
		q.Seed = p.seed + uint64(choice) + 1
	}
	if p.transfer != nil {
		t := *p.transfer
		q.Transfer = &t
	}
	g.seqs = append(g.seqs, sequence{
		internal: q.ID, prompt: prompt,
		detok: newDetokenizer(g.srv.model.voc, prompt),
	})
	g.open++
	if err := g.rank.add(&q, target{g.sink, len(g.seqs) - 1}); err != nil {
		g.open--
		g.seqs = g.seqs[:len(g.seqs)-1]
		return addProblem(err)
	}
	return nil
}

// internalID returns the engine's id of a sequence: cmpl-<id>-<prompt>-<8 hex>. Other APIs have no prompt
// number.
func (g *generation) internalID(i, choice int) string {
	b := make([]byte, 0, len(g.id)+24)
	if g.p.n > 1 {
		b = append(appendInt(b, choice), '_')
	}
	b = append(b, g.id...)
	switch g.p.at {
	case atCompletions:
		b = appendInt(append(b, '-'), i)
	case atResponses:
		b = append(b, "_0"...)
	}
	return string(appendHex(append(b, '-'), randomWord(), 8))
}

// next waits for outputs and takes them. It returns false if none will follow; then problem or vanished may
// be set.
func (g *generation) next() bool {
	if g.open == 0 || g.ending.problem != nil || g.ending.vanished {
		return false
	}
	select {
	case <-g.sink.ready:
	case <-g.closed:
		g.leave()
		return false
	case <-g.srv.life.ctx.Done():
		g.leave()
		return false
	}
	var bad *problem
	if g.got, bad = g.sink.take(g.got); bad != nil {
		g.ending.problem, g.ending.vanished = bad, bad == restarted
		return false
	}
	return true
}

// leave aborts the generation after the client has disconnected.
func (g *generation) leave() {
	g.ending.vanished = true
	g.abort()
	if !g.p.stream {
		g.srv.cleanUp(g.rank, g.p)
	}
}

func (g *generation) abort() {
	for i := range g.seqs {
		if !g.seqs[i].done {
			g.seqs[i].done = true
			g.rank.abort(g.seqs[i].internal)
		}
	}
	g.open = 0
}

// collect waits for the whole answer. After a problem, it tells the request's peer to free the blocks, as for
// a refused request.
func (g *generation) collect() *problem {
	for g.next() {
		for i := range g.got {
			g.absorb(&g.got[i])
		}
	}
	if g.ending.vanished {
		return restarted
	}
	if g.ending.problem != nil {
		g.srv.cleanUp(g.rank, g.p)
	}
	return g.ending.problem
}

// usage sums up the sequences. A prompt counts once, however many choices it has.
func (g *generation) usage() (prompt, completion, cached int) {
	for i := range g.seqs {
		completion += len(g.seqs[i].tokens)
		if i%g.p.n == 0 {
			prompt += len(g.seqs[i].prompt)
			cached += g.seqs[i].cached
		}
	}
	return prompt + g.over, completion, cached
}

// end aborts sequences that have not ended. It is called once, after the last use of the generation.
func (g *generation) end() { g.abort() }
