package estimate

import "math"

// Class holds what may predict the length of an answer besides the model and the prompt's length. The zero
// Class predicts nothing.
type Class struct {
	Tenant     uint32 // hash of the tenant; 0 unknown
	API        uint8  // number of the API of the request; 0 unknown
	Tools      bool   // the answer may be a tool call
	Structured bool   // the answer must keep to a form
	Stops      bool   // the client sent stop words
	Hint       int    // tokens that the client expects in each sequence; 0: no hint
}

// group names answers whose lengths are learned separately: a tenant's answers by one model, one class of a
// tenant's answers, or the errors of a tenant's hints.
type group struct {
	of                       kindOfGroup
	model                    string // "" for hints
	tenant                   uint32
	api                      uint8
	tools, structured, stops bool
	long                     uint8 // how long the prompt is
}

type kindOfGroup uint8

const (
	ofTenant kindOfGroup = iota
	ofClass
	ofHints
)

// String is the name in logs and in state files.
func (k kindOfGroup) String() string { return [...]string{"tenant", "class", "hints"}[k] }

// Prompts are short below shortPrompt, and long from longPrompt on. A question, a conversation and a pile of
// documents get answers of different lengths.
const (
	shortPrompt = 1024
	longPrompt  = 8192
)

// maxGroups bounds the number of groups. The group that was used longest ago is dropped.
const maxGroups = 512

// Lengths holds the learned lengths of answers in four levels: of all answers, of each model, of each tenant
// and of each class. Guarded by the lock of the pool.
type Lengths struct {
	all    *OutputLength
	models map[string]*OutputLength // as clients name them
	groups map[group]*grouped

	// Answers with a hint: their real length, in units in which the hint is hintUnit.
	hinted *OutputLength
	met    uint64 // counts up by two with each request

	// Real lengths of all answers, cut answers included: these lengths say when KV blocks become free.
	ends  *OutputLength
	usual int     // tokens after which an answer may well have ended
	each  float64 // mean tokens of an answer
}

type grouped struct {
	*OutputLength
	met uint64 // the last use
}

// NewLengths begins with a guess of the mean length. The mean may be larger by the factor doubt; 1 means no
// doubt. The guess weighs as much as more answers beyond the usual weight.
func NewLengths(mean int, doubt, more float64) Lengths {
	l := Lengths{
		all:    NewOutputLength(mean, doubt, more),
		models: map[string]*OutputLength{},
		groups: map[group]*grouped{},
		hinted: NewOutputLength(hintUnit, hintDoubt, more),
		ends:   NewOutputLength(mean, doubt, more),
	}
	l.WorkOut()
	return l
}

// WorkOut recomputes the results that Usual and Mean return. Call it after samples of running answers.
func (l *Lengths) WorkOut() {
	l.usual, l.each = l.ends.Room(0, -1), float64(l.ends.Rest(0, -1))
}

// Usual returns the tokens after which an answer may well have ended, as of [Lengths.WorkOut].
func (l *Lengths) Usual() int { return l.usual }

// Mean returns the mean tokens of an answer, as of [Lengths.WorkOut].
func (l *Lengths) Mean() float64 { return l.each }

// All returns the lengths of all answers together.
func (l *Lengths) All() *OutputLength { return l.all }

// Expect returns the expected length of an answer to a prompt of so many tokens, by the closest known group.
// With meet, Expect makes the closest group if it is missing.
func (l *Lengths) Expect(model string, prompt int, c *Class, meet bool) Expectation {
	if meet {
		l.met += 2
	}
	is := group{
		of: ofClass, model: model, tenant: c.Tenant, api: c.API, tools: c.Tools, structured: c.Structured,
		stops: c.Stops, long: long(prompt),
	}
	e := Expectation{lengths: l.of(is, meet)}
	if c.Hint > 0 {
		e.hint, e.hinted = c.Hint, l.hintsOf(c.Tenant, meet)
	}
	return e
}

// Learn takes in an [AnswerTokens] of the answer that e is for. A sample without an upper bound is of a
// running answer. Each answer that Learn was called for ends with a sample of both bounds, with Cut or with
// Leave.
func (l *Lengths) Learn(e *Expectation, s Sample) {
	tokens := int(s.Low)
	if s.High > s.Low {
		e.passed(tokens)
		l.ends.Passed(e.told, tokens)
		e.told = tokens
		return
	}
	e.learn(tokens)
	l.ends.Learn(e.told, tokens)
	e.told = 0
	l.WorkOut()
}

// Cut records that a limit ended the answer of e at so many tokens: the answer would have been longer.
func (l *Lengths) Cut(e *Expectation, tokens int) {
	e.cut(tokens)
	l.ends.Learn(e.told, tokens)
	e.told = 0
	l.WorkOut()
}

// Leave records that the final length of e's answer will never be known. After the end of the answer it does
// nothing.
func (l *Lengths) Leave(e *Expectation) {
	e.cut(e.told)
	l.ends.Cut(e.told, e.told)
	e.told = 0
}

// of returns the lengths of a class, or of the closest group above the class.
func (l *Lengths) of(class group, meet bool) *OutputLength {
	model := l.OfModel(class.model, meet)
	if model == l.all {
		return model
	}
	return l.group(class, l.ofTenant(class, model, meet), meet)
}

// ofTenant returns the lengths of the tenant of g, or of its model if the tenant is unknown.
func (l *Lengths) ofTenant(g group, model *OutputLength, meet bool) *OutputLength {
	if g.tenant == 0 {
		return model
	}
	return l.group(group{of: ofTenant, model: g.model, tenant: g.tenant}, model, meet)
}

// OfModel returns the lengths of a model's answers.
func (l *Lengths) OfModel(model string, meet bool) *OutputLength {
	switch found := l.models[model]; {
	case found != nil:
		return found
	case !meet:
		return l.all
	}
	l.models[model] = l.all.Under()
	return l.models[model]
}

func (l *Lengths) hintsOf(tenant uint32, meet bool) *OutputLength {
	if tenant == 0 {
		return l.hinted
	}
	return l.group(group{of: ofHints, tenant: tenant}, l.hinted, meet)
}

// group returns the lengths of g. If g is missing and must not be made, group returns the lengths above.
func (l *Lengths) group(g group, above *OutputLength, meet bool) *OutputLength {
	found := l.groups[g]
	switch {
	case !meet && found == nil:
		return above
	case !meet:
		return found.OutputLength
	case found == nil:
		if len(l.groups) >= maxGroups {
			l.makeRoom()
		}
		found = &grouped{OutputLength: above.Part()}
		l.groups[g] = found
	}
	found.met = l.met
	if g.of == ofTenant {
		found.met++ // a tenant is dropped after its classes
	}
	return found.OutputLength
}

// makeRoom drops the group that was used longest ago.
func (l *Lengths) makeRoom() {
	var oldest group
	least := uint64(math.MaxUint64)
	for g, of := range l.groups {
		if of.met < least {
			least, oldest = of.met, g
		}
	}
	delete(l.groups, oldest)
}

// long returns the class of a prompt's length.
func long(tokens int) uint8 {
	switch {
	case tokens >= longPrompt:
		return 2
	case tokens >= shortPrompt:
		return 1
	}
	return 0
}
