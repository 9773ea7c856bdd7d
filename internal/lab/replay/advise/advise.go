// Package advise finds out whether splitting prefill and decode pays for some traffic on a number of
// replicas, and in which shape. It plays the traffic in several shapes and at several loads.
package advise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Question is the input of [Ask].
type Question struct {
	// Play has the traffic and the engines. Its cluster and policies are ignored. Its load is 1 below.
	Play     replay.Play
	Replicas int    // at least 2, each with the GPUs of the profile
	Goals    []Goal // each goal gets its best shape
	// A fleet holds a load if this share of the answers keeps the goal, above 0 and below 1; see
	// [replay.Enough].
	Enough float64
	// Progress is called after each shape, with the approximate share of shapes that are done.
	Progress func(text string, share float64)

	// Plays one shape at a load: [played], except in tests.
	simulate func(ctx context.Context, p replay.Play) (*replay.Outcome, error)
}

// Goal is a goal of answers.
type Goal struct {
	Name string // printed
	SLO  replay.SLO
	kept func(*replay.Outcome) float64
}

// Goals are the two goals of every outcome: a goal that most users accept, and a goal at which text appears
// without visible pauses.
func Goals() []Goal {
	return []Goal{
		{"usual", replay.Usual, func(o *replay.Outcome) float64 { return o.Usual }},
		{"tight", replay.Tight, func(o *replay.Outcome) float64 { return o.Tight }},
	}
}

// own is the name of [Own].
const own = "own"

// Own is a goal besides [Goals]. The play of the question must have the same goal.
func Own(slo replay.SLO) Goal {
	return Goal{own, slo, func(o *replay.Outcome) float64 { return o.Good }}
}

// Advice is the answer.
type Advice struct {
	Replicas int       `json:"replicas"`
	Shapes   []Shape   `json:"shapes"` // the played shapes, from one pool to the fewest decode replicas
	Verdicts []Verdict `json:"verdicts"`
	// Stopped means that not all shapes were tried: others may hold more. A verdict needs one pool and one shape
	// that splits.
	Partial bool `json:"partial,omitempty"`
}

// Shape is a fleet of the question's replicas.
type Shape struct {
	Name    string          `json:"shape"`   // "8D" splits nothing
	Prefill int             `json:"prefill"` // replicas that only prefill
	Now     *replay.Outcome `json:"now"`     // at the load of the traffic itself
	Holds   []Held          `json:"holds"`   // for each goal
	done    bool            // all its plays are finished
}

// Held is the largest load that a shape holds, as a multiple of the traffic's own load; 0 if it held no
// tried load. Low and High are the loads with one standard deviation more or fewer good answers.
type Held struct {
	Load float64 `json:"load"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Verdict is the result for one goal. Shapes are indices of [Advice.Shapes].
type Verdict struct {
	Goal   Goal    `json:"goal"`
	Idle   float64 `json:"idle"`   // share of the answers that keep the goal at an eighth of the load
	Enough float64 `json:"enough"` // share from which a load is held; 0 if Idle is too small for the goal
	Pool   int     `json:"pool"`   // the shape with one pool
	Best   int     `json:"best"`   // the splitting shape that holds most
	Answer Answer  `json:"answer"`
}

// Answer says whether to split.
type Answer string

// The answers.
const (
	Split    Answer = "split"
	Pool     Answer = "do not split"
	Close    Answer = "too close to tell" // the best shape that splits may hold more, or not
	Beyond   Answer = "all hold it"       // every load that was tried, in one pool and in the best shape
	Hopeless Answer = "out of reach"      // even an idle fleet hardly ever keeps the goal
)

// WorthIt is how much more load a split fleet must hold to be worth its KV connector.
const WorthIt = 1.05

// mostReplicas is the largest number of replicas. It limits the time of a search.
const mostReplicas = 64

// ErrStopped says that the context ended before all shapes were tried.
var ErrStopped = errors.New("stopped before all shapes were tried")

// Ask plays the shapes. If ctx ends before, it returns [ErrStopped] with the results so far, or with nil if
// no shape was finished.
func Ask(ctx context.Context, q *Question) (*Advice, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if p := q.at(0, 1); q.simulate == nil {
		if _, err := p.Fleet(); err != nil {
			return nil, err
		}
	}
	s := newSearch(q)
	err := s.all(ctx)
	stopped := err != nil && ctx.Err() != nil
	if err != nil && !stopped {
		return nil, err
	}
	a := &Advice{Replicas: q.Replicas, Shapes: s.found(), Verdicts: s.verdicts, Partial: stopped}
	if stopped {
		err = ErrStopped
		if len(a.Shapes) == 0 {
			return nil, err
		}
		if len(a.Shapes) == 1 || a.Shapes[0].Prefill > 0 { // nothing to compare
			a.Verdicts = nil
		}
	}
	for i := range a.Verdicts {
		a.Verdicts[i].judge(a.Shapes, i)
	}
	return a, err
}

func (q *Question) check() error {
	switch {
	case q.Replicas < 2 || q.Replicas > mostReplicas:
		return fmt.Errorf("replicas is %d: want 2, so that there is something to split, to %d",
			q.Replicas, mostReplicas)
	case !(q.Enough > 0 && q.Enough < 1):
		return fmt.Errorf("a share of %g good answers: want a share above 0 and below 1, for example 0.9", q.Enough)
	case len(q.Goals) == 0:
		return fmt.Errorf("no goal to look for")
	}
	return nil
}

// judge compares the shapes at the goal with this number.
func (v *Verdict) judge(shapes []Shape, goal int) {
	v.Best = -1
	for i, s := range shapes {
		if s.Prefill > 0 && (v.Best < 0 || s.Holds[goal].Load > shapes[v.Best].Holds[goal].Load) {
			v.Best = i
		}
	}
	v.Pool = slices.IndexFunc(shapes, func(s Shape) bool { return s.Prefill == 0 })
	pool, best := shapes[v.Pool].Holds[goal], shapes[v.Best].Holds[goal]
	switch worth := best.Load > WorthIt*pool.Load; {
	case v.Enough == 0:
		v.Answer = Hopeless
	case pool.Load >= loadOf(most) && best.Load >= loadOf(most):
		v.Answer = Beyond
	case worth && best.Low > pool.High:
		v.Answer = Split
	case worth:
		v.Answer = Close
	default:
		v.Answer = Pool
	}
}

// played plays with Tandem's defaults.
func played(ctx context.Context, p replay.Play) (*replay.Outcome, error) {
	o, _, err := p.Once(ctx, "tandem")
	return o, err
}

// at returns the traffic for a shape at a multiple of its load: the same requests, closer together or
// further apart.
func (q *Question) at(prefill int, load float64) replay.Play {
	p := q.Play
	p.Cluster = cluster.ShapeOf(prefill, q.Replicas)
	p.Scale *= load
	p.For = time.Duration(float64(p.For) / load)
	return p
}
