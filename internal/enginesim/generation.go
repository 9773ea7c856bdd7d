package enginesim

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tandem/internal/enginesim/core"
)

// generation is the set of engine requests behind one HTTP request: one per prompt and choice, in the order
// of the answer's choices.
type generation struct {
	srv      *Server
	rank     *rank
	p        *params
	id       string // external id with its prefix
	created  int64
	sink     *sink
	seqs     []sequence
	open     int // sequences not ended
	over     int // prompt tokens that usage counts too many
	got      []delivery
	closed   <-chan struct{}
	problem  *problem // why it ended without being complete
	vanished bool     // the client has left, or the process was cut: nobody to answer
}

// sequence is one choice.
type sequence struct {
	internal string
	prompt   []uint32
	tokens   []uint32
	detok    detokenizer
	text     []byte
	sent     int // bytes of text that are out, or lie behind the end
	cached   int
	done     bool
	reason   string // finish_reason
	stop     string // stop_reason when a stop string ended it
	stopID   uint32 // stop_reason when a token did
	byID     bool
	params   []byte // kv_transfer_params of the answer, nil for null
}

// restarted ends requests of a process that is gone: nobody answers them.
var restarted = &problem{status: 0, message: "the process was restarted"}

// leg says which leg of a split request this is, as faults name it.
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

// begin checks the request and gives it to a core. The problem, if any, has told the peer of the request's
// params that they are void.
func (s *Server) begin(k *call, p *params, prefix string) (*generation, *problem) {
	if s.o.Wrong.NoConnector {
		p.transfer = nil // vLLM takes the field and looks at nothing in it
	}
	if f, ok := s.faults.takeFor("fail", k.path, p.leg(), k.body); ok {
		if f.Body != "" { // it failed on what the request is, not on its way
			s.cleanUp(nil, p)
		}
		return nil, &problem{status: f.Status, kind: "InternalServerError", message: "injected failure"}
	}
	if _, ok := s.faults.take("stall", k.path, p.leg()); ok {
		k.hang()
		return nil, restarted
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
	if _, ok := s.faults.take("miscount", k.path, p.leg()); ok {
		g.over = 1
	}
	if f, ok := s.faults.take("cut_stream", k.path, p.leg()); ok {
		k.cut = f.After
	}
	if f, ok := s.faults.take("stall_stream", k.path, p.leg()); ok {
		k.cut, k.silent = f.After, true
	}
	if f, ok := s.faults.take("fail_stream", k.path, p.leg()); ok {
		k.cut, k.fails = f.After, true
	}
	return g, nil
}

// cleanUp is vLLM's rejection cleanup: the params of a request that the API layer refuses go to the core,
// which tells P to free the blocks. /inference/v1/generate has none, and 0.20 had none at all.
func (s *Server) cleanUp(r *rank, p *params) {
	if p.transfer == nil || !bool(p.transfer.DoRemotePrefill) || p.at == atGenerate || !s.versionAtLeast(21) {
		return
	}
	if r == nil {
		r = s.ranks[0]
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

// check is what the API layer looks at before the engine sees anything.
func (s *Server) check(p *params) *problem {
	if !s.serves(p.model) {
		return &problem{
			status: 404, kind: "NotFoundError", param: "model",
			message: "The model `" + p.model + "` does not exist. Valid aliases: " + strings.Join(s.served(), ", ") +
				".",
		}
	}
	if p.later != nil {
		return p.later
	}
	if bad := s.prepare(p); bad != nil {
		return bad
	}
	if bad := p.reuseIDs(s); bad != nil {
		return bad
	}
	if len(p.prompts) == 0 || slices.ContainsFunc(p.prompts, func(ids []uint32) bool { return len(ids) == 0 }) {
		return badRequest("prompt",
			"Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
	}
	for _, ids := range p.prompts {
		if bad := s.checkPrompt(p, ids); bad != nil {
			return bad
		}
	}
	if bad := p.verifyArgs(); bad != nil {
		return bad
	}
	return s.engine(p)
}

func (s *Server) checkPrompt(p *params, ids []uint32) *problem {
	limit := s.ranks[0].cfg.MaxModelLen
	switch n := len(ids); {
	case n > limit:
		least := ""
		if n == limit+1 {
			least = "at least " // a tokenizer would have stopped there
		}
		return valued("input_tokens", strconv.Itoa(n),
			"This model's maximum context length is %d tokens. However, your prompt contains %s%d input tokens, "+
				"which exceeds this limit even without any output tokens. Please reduce the length of the input "+
				"prompt.", limit, least, n)
	case n == limit && !p.tooFew:
		return valued("max_tokens", "0", "max_tokens must be at least 1, got 0.")
	}
	return nil
}

func (s *Server) inVocabulary(ids []uint32) *problem {
	size := uint32(s.voc.size)
	for _, id := range ids {
		if id >= size {
			return badRequest("", "Token id %d is out of vocabulary", id)
		}
	}
	return nil
}

// reused is where the ids stand that replace a template.
const reused = "kv_transfer_params.prompt_token_ids"

// reuseIDs replaces the templated prompt by kv_transfer_params.prompt_token_ids, which the chat doors
// (0.27 and later) take from there.
func (p *params) reuseIDs(s *Server) *problem {
	if p.at == atCompletions || p.at == atGenerate || p.reuseRaw == nil || p.echo || !s.versionAtLeast(27) {
		return nil
	}
	sc := scan(p.reuseRaw)
	negative := false
	var ids []uint32
	sc.array(func() {
		n := sc.integer(-1)
		negative = negative || n < 0
		ids = append(ids, clampID(n))
	})
	if sc.end() != nil || negative || len(ids) == 0 {
		return about(reused,
			"`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers.")
	}
	if bad := s.inVocabulary(ids); bad != nil {
		return about(reused, "%s", bad.message)
	}
	p.prompts = append(p.prompts[:0], ids)
	return nil
}

// submit adds every sequence to the core; on a problem it takes back what it had added.
func (g *generation) submit() *problem {
	p := g.p
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
		q.Scripts = p.scripts(g.srv.voc)
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
	g.seqs = append(g.seqs, sequence{internal: q.ID, prompt: prompt, detok: newDetokenizer(g.srv.voc, prompt)})
	g.open++
	if err := g.rank.add(&q, target{g.sink, len(g.seqs) - 1}); err != nil {
		g.open--
		g.seqs = g.seqs[:len(g.seqs)-1]
		return addProblem(err)
	}
	return nil
}

// internalID is the id that the engine gives a sequence: cmpl-<id>-<prompt>-<8 hex>, other doors without the
// prompt's number.
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

// next waits for outputs and takes them in. False: nothing more will come; then problem or vanished may be
// set.
func (g *generation) next() bool {
	if g.open == 0 || g.problem != nil || g.vanished {
		return false
	}
	select {
	case <-g.sink.ready:
	case <-g.closed:
		g.leave()
		return false
	case <-g.srv.ctx.Done():
		g.leave()
		return false
	}
	var bad *problem
	if g.got, bad = g.sink.take(g.got); bad != nil {
		g.problem, g.vanished = bad, bad == restarted
		return false
	}
	return true
}

// leave ends what the client will not read any more.
func (g *generation) leave() {
	g.vanished = true
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

// absorb takes one output into its sequence and reports whether it belongs there still: after a stop string a
// few may come that do not.
func (g *generation) absorb(d *delivery) (*sequence, bool) {
	q := &g.seqs[d.seq]
	if q.done {
		return q, false
	}
	if d.out.Reason == core.FinishError && d.out.Finished {
		g.problem = internalError
		g.abort()
		return q, false
	}
	q.cached = d.out.Cached
	before := len(q.text)
	if d.out.Reason != core.FinishAbort {
		q.tokens = append(q.tokens, d.out.Token)
		if !d.out.Stopped && (d.out.Reason != core.FinishStop || d.out.Token != g.eos()) {
			q.text = append(q.text, q.detok.next(d.out.Token)...)
		}
	}
	if d.out.Finished {
		g.finish(q, d)
	}
	g.stopString(q, before)
	return q, true
}

func (g *generation) eos() uint32 {
	if e := g.rank.cfg.EOS; e > 0 {
		return uint32(e)
	}
	return ^uint32(0)
}

func (g *generation) finish(q *sequence, d *delivery) {
	q.done = true
	q.reason = d.out.Reason.String()
	q.params = d.params
	if d.out.Stopped {
		q.stopID, q.byID = d.out.Token, true
	}
	g.open--
	if q.params != nil {
		if _, ok := g.srv.faults.take("null_params", "", g.p.leg()); ok {
			q.params = nil
		}
	}
}

// stopString ends a sequence whose text holds one of the request's stop strings, of those that the text
// behind before has completed the first. The text ends before it, or with it where the request wants that.
func (g *generation) stopString(q *sequence, before int) {
	if len(g.p.stop) == 0 || len(q.tokens) <= g.p.minTokens || len(q.text) == before {
		return
	}
	end, found := len(q.text)+1, ""
	for _, stop := range g.p.stop {
		from := max(0, before-len(stop)+1)
		if i := strings.Index(string(q.text[from:]), stop); stop != "" && i >= 0 && from+i+len(stop) < end {
			end, found = from+i+len(stop), stop
		}
	}
	if found == "" {
		return
	}
	if !g.p.includeStop {
		end -= len(found)
	}
	q.text = q.text[:end]
	q.stop = found
	q.reason = "stop"
	if !q.done {
		q.done = true
		g.open--
		g.rank.abort(q.internal)
	}
}

// last is the newest token as a list.
func (q *sequence) last() []uint32 { return q.tokens[max(len(q.tokens)-1, 0):] }

// fresh is the text that may go out now: while a stop string may still come, as many characters are held back
// as may be its beginning.
func (g *generation) fresh(q *sequence) string {
	end := len(q.text)
	if !q.done && !g.p.includeStop {
		hold := 0
		for _, stop := range g.p.stop {
			hold = max(hold, utf8.RuneCountInString(stop)-1)
		}
		for ; hold > 0 && end > 0; hold-- {
			_, n := utf8.DecodeLastRune(q.text[:end])
			end -= n
		}
	}
	if end <= q.sent {
		return ""
	}
	text := string(q.text[q.sent:end])
	q.sent = end
	return text
}

// collect waits for the whole answer. A problem has made the request's params void, as a refusal would.
func (g *generation) collect() *problem {
	for g.next() {
		for i := range g.got {
			g.absorb(&g.got[i])
		}
	}
	if g.vanished {
		return restarted
	}
	if g.problem != nil {
		g.srv.cleanUp(g.rank, g.p)
	}
	return g.problem
}

// usage sums the sequences: a prompt counts once however many choices it has.
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

// end gives everything back. It is called once, after the last use of the generation.
func (g *generation) end() { g.abort() }

// served are the names that /v1/models lists.
func (s *Server) served() []string {
	names := append([]string{s.o.Model}, s.o.Aliases...)
	for _, a := range s.adapters() {
		names = append(names, a.name)
	}
	return names
}

func addProblem(err error) *problem {
	switch err {
	case core.ErrDead:
		return engineDead
	case core.ErrDuplicate:
		return badRequest("", "Request id is in use.")
	}
	return badRequest("", "%v", err)
}
