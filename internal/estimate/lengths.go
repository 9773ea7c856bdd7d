package estimate

import "math"

// Class is what may tell of the length of an answer besides its model and its prompt's length. The zero
// Class says nothing.
type Class struct {
	Tenant     uint32 // who asks, as a hash; 0 unknown
	API        uint8  // through which API, each a number of its own; 0 unknown
	Tools      bool   // the answer may be a call of a tool
	Structured bool   // it has to keep to a form
	Stops      bool   // words of the client's end it
	Hint       int    // tokens that the client expects of each sequence, 0 it does not say
}

// group is whose lengths are learned apart: all of a tenant's of one model, those of one class of these, or
// how far off a tenant's hints are.
type group struct {
	of                       kindOfGroup
	model                    string // "" of hints
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

// String names it, in files too.
func (k kindOfGroup) String() string { return [...]string{"tenant", "class", "hints"}[k] }

// Prompts are short below the first of these, and long from the second on: a question, a conversation and a
// pile of documents are not answered alike.
const (
	shortPrompt = 1024
	longPrompt  = 8192
)

// maxGroups is for how many groups lengths are kept. The one that was met longest ago makes room.
const maxGroups = 512

// Lengths is what is learned of the length of answers: of all, under that of each model, under that of each
// tenant's, and under that of each class. Guarded by the lock of the pool.
type Lengths struct {
	all    *OutputLength
	models map[string]*OutputLength // as clients name them
	groups map[group]*grouped

	// Of answers whose length the client has said: what they have, hintUnit of them being what was said.
	hinted *OutputLength
	met    uint64 // counts up by two with each request that is met

	// How long all answers really were, cut ones included: by when they free their room.
	ends  *OutputLength
	usual int     // tokens after which an answer may well be over
	each  float64 // tokens of an answer on average
}

type grouped struct {
	*OutputLength
	met uint64 // the last time
}

// NewLengths begins with a guess of the mean, which may be too small by the factor doubt (up to 1: it is
// not).
func NewLengths(mean int, doubt float64) Lengths {
	l := Lengths{
		all:    NewOutputLength(mean, doubt),
		models: map[string]*OutputLength{},
		groups: map[group]*grouped{},
		hinted: NewOutputLength(hintUnit, hintDoubt),
		ends:   NewOutputLength(mean, doubt),
	}
	l.WorkOut()
	return l
}

// WorkOut works out what follows from how long answers were. To be called after samples of answers that are
// under way.
func (l *Lengths) WorkOut() {
	l.usual, l.each = l.ends.Room(0, -1), float64(l.ends.Rest(0, -1))
}

// Usual returns after how many tokens an answer may well be over, as of [Lengths.WorkOut].
func (l *Lengths) Usual() int { return l.usual }

// Mean returns how many tokens an answer has on average, as of [Lengths.WorkOut].
func (l *Lengths) Mean() float64 { return l.each }

// All returns the lengths of all answers together.
func (l *Lengths) All() *OutputLength { return l.all }

// Expect returns what is expected of an answer to a prompt of so many tokens, by the closest group that
// there is. meet makes a group of its own where there is none.
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

// Learn takes in an [AnswerTokens] of the answer that e is for. A sample without an upper bound is of an
// answer under way. Each answer that was learned of ends with a sample that has both bounds, or with Cut or
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

// Cut takes in that a limit has ended the answer that e is for at so many tokens: it would have been longer.
func (l *Lengths) Cut(e *Expectation, tokens int) {
	e.cut(tokens)
	l.ends.Learn(e.told, tokens)
	e.told = 0
	l.WorkOut()
}

// Leave takes in that nobody will tell how long the answer that e is for would have become. After its end it
// does nothing.
func (l *Lengths) Leave(e *Expectation) {
	e.cut(e.told)
	l.ends.Cut(e.told, e.told)
	e.told = 0
}

// of returns the lengths of a class, or those of the closest above it.
func (l *Lengths) of(class group, meet bool) *OutputLength {
	model := l.OfModel(class.model, meet)
	if model == l.all {
		return model
	}
	return l.group(class, l.ofTenant(class, model, meet), meet)
}

// ofTenant returns the lengths of the tenant of g, those of its model where it is not known.
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

// group returns the lengths of g, those above where there are none and none are to be made.
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
		found.met++ // it makes room after its classes
	}
	return found.OutputLength
}

// makeRoom forgets the group that was met longest ago.
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

// long says how long a prompt is.
func long(tokens int) uint8 {
	switch {
	case tokens >= longPrompt:
		return 2
	case tokens >= shortPrompt:
		return 1
	}
	return 0
}
