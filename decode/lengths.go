package decode

import (
	"math"

	"github.com/tandem-router/tandem/internal/estimate"
)

// Class is what may tell of the length of an answer besides its model and its prompt's length. The zero Class
// says nothing.
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

// lengths is what is learned of the length of answers: of all, under that of each model, under that of each
// tenant's, and under that of each class. Guarded by the lock of the pool.
type lengths struct {
	all    *estimate.OutputLength
	models map[string]*estimate.OutputLength // as clients name them
	groups map[group]*grouped

	// Of answers whose length the client has said: what they have, hintUnit of them being what was said.
	hinted *estimate.OutputLength
	met    uint64 // counts up by two with each request that is met

	// How long all answers really were, cut ones included: by when they free their room.
	ends  *estimate.OutputLength
	usual int     // tokens after which an answer may well be over
	each  float64 // tokens of an answer on average
}

type grouped struct {
	*estimate.OutputLength
	met uint64 // the last time
}

func newLengths(s Settings) lengths {
	l := lengths{
		all:    estimate.NewOutputLength(s.ExpectedOutput, s.OutputDoubt),
		models: map[string]*estimate.OutputLength{},
		groups: map[group]*grouped{},
		hinted: estimate.NewOutputLength(hintUnit, hintDoubt),
		ends:   estimate.NewOutputLength(s.ExpectedOutput, s.OutputDoubt),
	}
	l.workOut()
	return l
}

// workOut works out what follows from how long answers were.
func (l *lengths) workOut() {
	l.usual, l.each = l.ends.Room(0, -1), float64(l.ends.Rest(0, -1))
}

// expects returns what is expected of the answer to q, by the closest group that there is. meet makes its own
// where that is missing.
func (p *Pool) expects(q *Query, meet bool) expectation {
	l := &p.lengths
	if meet {
		l.met += 2
	}
	e := expectation{lengths: l.of(classOf(q), meet)}
	if q.Class.Hint > 0 {
		e.hint, e.hinted = q.Class.Hint, l.hintsOf(q.Class.Tenant, meet)
	}
	return e
}

// classOf returns the class of q.
func classOf(q *Query) group {
	c := &q.Class
	return group{
		of: ofClass, model: q.Model, tenant: c.Tenant, api: c.API, tools: c.Tools, structured: c.Structured,
		stops: c.Stops, long: long(q.Tokens),
	}
}

// of returns the lengths of a class, or those of the closest above it.
func (l *lengths) of(class group, meet bool) *estimate.OutputLength {
	model := l.ofModel(class.model, meet)
	if model == l.all {
		return model
	}
	return l.group(class, l.ofTenant(class, model, meet), meet)
}

// ofTenant returns the lengths of the tenant of g, those of its model where it is not known.
func (l *lengths) ofTenant(g group, model *estimate.OutputLength, meet bool) *estimate.OutputLength {
	if g.tenant == 0 {
		return model
	}
	return l.group(group{of: ofTenant, model: g.model, tenant: g.tenant}, model, meet)
}

// ofModel returns the lengths of a model's answers.
func (l *lengths) ofModel(model string, meet bool) *estimate.OutputLength {
	switch found := l.models[model]; {
	case found != nil:
		return found
	case !meet:
		return l.all
	}
	l.models[model] = l.all.Under()
	return l.models[model]
}

func (l *lengths) hintsOf(tenant uint32, meet bool) *estimate.OutputLength {
	if tenant == 0 {
		return l.hinted
	}
	return l.group(group{of: ofHints, tenant: tenant}, l.hinted, meet)
}

// group returns the lengths of g, those above where there are none and none are to be made.
func (l *lengths) group(g group, above *estimate.OutputLength, meet bool) *estimate.OutputLength {
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
func (l *lengths) makeRoom() {
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
