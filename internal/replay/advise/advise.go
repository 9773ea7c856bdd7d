// Package advise says whether some replicas should split a traffic between prefill and decode, and in which
// shape: it plays that traffic in each shape and at several loads.
package advise

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tandem/internal/replay"
)

// Question is what is asked.
type Question struct {
	// Play has the traffic and the engines. Its cluster and policies are not looked at; its load is 1 in what
	// follows.
	Play     replay.Play
	Replicas int    // at least 2, each with the GPUs of the profile
	Goals    []Goal // for each of which a shape is looked for
	// Share of the answers that keep a goal for a fleet to hold a load, above 0 and below 1. Where even an idle
	// fleet has less it is [ofIdle] of what that has.
	Enough   float64
	Progress func(string)

	// Plays one shape at a load; [played], but for tests.
	simulate func(ctx context.Context, p replay.Play) (*replay.Outcome, error)
}

// Goal is what answers are held to.
type Goal struct {
	Name string // as it is told
	SLO  replay.SLO
	kept func(*replay.Outcome) float64
}

// Goals are the two that every outcome is held to: what most people would put up with, and what reads
// without a hitch.
func Goals() []Goal {
	return []Goal{
		{"usual", replay.Usual, func(o *replay.Outcome) float64 { return o.Usual }},
		{"tight", replay.Tight, func(o *replay.Outcome) float64 { return o.Tight }},
	}
}

// own is the name of [Own].
const own = "own"

// Own is a goal that is not one of [Goals]. The play that is asked with it has to have the same one.
func Own(slo replay.SLO) Goal {
	return Goal{own, slo, func(o *replay.Outcome) float64 { return o.Good }}
}

// Advice is the answer.
type Advice struct {
	Replicas int       `json:"replicas"`
	Shapes   []Shape   `json:"shapes"` // that were played, from one pool to as few that decode as can be
	Verdicts []Verdict `json:"verdicts"`
}

// Shape is a fleet of the replicas that the question is about.
type Shape struct {
	Name    string          `json:"shape"`   // "8D" splits nothing
	Prefill int             `json:"prefill"` // replicas that only prefill
	Now     *replay.Outcome `json:"now"`     // at the load of the traffic itself
	Holds   []float64       `json:"holds"`   // largest load that keeps each goal, 0 none
}

// Verdict is what holds for one goal. Shapes are indices of [Advice.Shapes].
type Verdict struct {
	Goal   Goal    `json:"goal"`
	Idle   float64 `json:"idle"`   // share of the answers that keep it at an eighth of the load
	Enough float64 `json:"enough"` // share that makes a load one that is held; 0 where Idle is hopelessly small
	Pool   int     `json:"pool"`   // that splits nothing
	Best   int     `json:"best"`   // of those that split, the one that holds most
	Splits bool    `json:"splits"` // whether splitting is worth it
}

// WorthIt is by how much more a fleet that splits has to hold: capacities of single plays differ by some
// percent, and a fleet that splits has a connector to keep.
const WorthIt = 1.05

// What is enough where even an idle fleet misses the share that is asked for, and the share of an idle fleet
// below which a goal is not looked at.
const (
	ofIdle   = 0.95
	hopeless = 0.3
)

// Ask plays what it takes.
func Ask(ctx context.Context, q *Question) (*Advice, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	s := newSearch(q)
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.coarse(ctx); err != nil {
		return nil, err
	}
	for i := range q.Goals {
		if err := s.refine(ctx, i); err != nil {
			return nil, err
		}
	}
	a := &Advice{Replicas: q.Replicas, Shapes: s.found(), Verdicts: s.verdicts}
	for i := range a.Verdicts {
		a.Verdicts[i].judge(a.Shapes, i)
	}
	return a, nil
}

func (q *Question) check() error {
	switch {
	case q.Replicas < 2:
		return fmt.Errorf("%d replicas: nothing can be split between fewer than 2", q.Replicas)
	case q.Enough <= 0 || q.Enough >= 1:
		return fmt.Errorf("a share of %g good answers: want one above 0 and below 1, as 0.9", q.Enough)
	case len(q.Goals) == 0:
		return fmt.Errorf("no goal to look for")
	}
	return nil
}

// judge compares the shapes at the goal of that number.
func (v *Verdict) judge(shapes []Shape, goal int) {
	v.Best = -1
	for i, s := range shapes {
		if s.Prefill > 0 && (v.Best < 0 || s.Holds[goal] > shapes[v.Best].Holds[goal]) {
			v.Best = i
		}
	}
	v.Pool = slices.IndexFunc(shapes, func(s Shape) bool { return s.Prefill == 0 })
	v.Splits = shapes[v.Best].Holds[goal] > WorthIt*shapes[v.Pool].Holds[goal]
}

// played plays with the decision's defaults.
func played(ctx context.Context, p replay.Play) (*replay.Outcome, error) {
	o, _, err := p.Once(ctx, "tandem")
	return o, err
}

// at is the traffic at so many times its load, in the shape: the same requests, closer or further apart.
func (q *Question) at(prefill int, load float64) replay.Play {
	p := q.Play
	p.Cluster = name(prefill, q.Replicas)
	p.Scale *= load
	p.For = time.Duration(float64(p.For) / load)
	return p
}

// name is the short form of a shape.
func name(prefill, replicas int) string {
	if prefill == 0 {
		return fmt.Sprintf("%dD", replicas)
	}
	return fmt.Sprintf("%dP%dD", prefill, replicas-prefill)
}
