// Package claims checks the claims about Tandem's decision. Each claim is a line with an interval over
// requests, a target, and whether the claim holds.
//
// The steps, as files: claims.go lists the claims (quick.go for CI; failing.go, overload.go and
// pressure.go). lab.go plays the runs that the claims need. pairs.go puts the same requests of two policies
// side by side. bootstrap.go computes how certain a difference is. report.go writes the lines. tune.go
// searches for better weights by the same means.
package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Line is one claim and its result.
type Line struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Low    float64 `json:"low"`    // 95 % of resamples are
	High   float64 `json:"high"`   // between these two
	Target float64 `json:"target"` // lower or upper bound, see How
	Holds  bool    `json:"holds"`
	How    string  `json:"-"` // how the value is computed, and whether the target is a lower or an upper bound
	Bound  Bound   `json:"-"`
	Note   string  `json:"-"` // the figures from which it is computed
}

// Bound says on which side of its target a value must be.
type Bound uint8

// A value must be at least its target, or at most.
const (
	AtLeast Bound = iota
	AtMost
)

func (b Bound) String() string {
	if b == AtMost {
		return "<="
	}
	return ">="
}

func (b Bound) met(value, target float64) bool {
	if b == AtMost {
		return value <= target
	}
	return value >= target
}

// Options of [Run].
type Options struct {
	Traces   string   // folder
	Host     string   // model of the engines' CPU time, see [replay.Play]
	Links    string   // model of simultaneous transfers, see [replay.Play]
	Only     []string // claims whose name begins with a listed prefix; empty: all
	All      bool     // also claims about failing replicas, overload and old reports, which take minutes
	Workers  int      // plays at the same time, at least 1
	Progress func(text string)
}

// Run computes every selected claim, several plays at a time. The lines come in the order of the claims.
// With an error come the lines that were finished before it.
func Run(ctx context.Context, o Options) ([]Line, error) {
	all := o.claims()
	asked := slices.DeleteFunc(all, func(c claim) bool { return !o.wants(c.name) })
	if len(asked) == 0 {
		return nil, fmt.Errorf("no claim begins with any of %q", o.Only)
	}
	l := newLab(o)
	lines := make([]Line, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, o.Workers)) // so that claims end in about their order
	for i, c := range asked {
		group.Go(func() error {
			e, err := c.measure(ctx, l)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			lines[i] = c.line(e)
			l.say("%s", lines[i].text())
			return nil
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(lines, func(l Line) bool { return l.Name == "" }), err
}

func (o *Options) claims() []claim {
	if o.All {
		return slices.Concat(quickClaims(), failingClaims(), overloadClaims(), staleClaims(), pressureClaims())
	}
	return quickClaims()
}

func (o *Options) wants(name string) bool {
	return len(o.Only) == 0 ||
		slices.ContainsFunc(o.Only, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Names lists the claims.
func (o *Options) Names() []string {
	var names []string
	for _, c := range o.claims() {
		names = append(names, c.name)
	}
	return names
}

// Missed returns an error that names every line which does not hold.
func Missed(lines []Line) error {
	var err error
	for _, l := range lines {
		if !l.Holds {
			err = errors.Join(err, fmt.Errorf("missed: %s", l.text()))
		}
	}
	return err
}
