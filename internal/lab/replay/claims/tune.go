package claims

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// Objective is the figure that tuning improves.
type Objective struct {
	Name  string
	f     figure
	lower bool // smaller is better
}

// Objectives are the objectives of tuning, the usual one first. The other objectives are reported too.
func Objectives() []Objective {
	return []Objective{
		{"mean-ttft", meanTTFT, true},
		{"p50-ttft", p50TTFT, true},
		{"p90-ttft", p90TTFT, true},
		{"p99-ttft", p99TTFT, true},
		{"p99-tpot", p99TPOT, true},
		{"goodput", good, false},
	}
}

// ObjectiveNamed finds the objective with this name.
func ObjectiveNamed(name string) (Objective, error) {
	var names []string
	for _, o := range Objectives() {
		if o.Name == name {
			return o, nil
		}
		names = append(names, o.Name)
	}
	return Objective{}, fmt.Errorf("no objective %q: there are %s", name, strings.Join(names, ", "))
}

// gain is how much better b is than a, as a share of a.
func (o Objective) gain(a, b float64) float64 {
	if o.lower {
		return reduction(b, a)
	}
	return reduction(a, b)
}

// Weights are production's weights as tuning sets them; Alpha 0 is auto.
type Weights struct{ Alpha, Beta, Gamma, Penalty float64 }

// Policy is the policy with these weights.
func (w Weights) Policy() string {
	return fmt.Sprintf("tandem:alpha=%g:beta=%g:gamma=%g:penalty=%g", w.Alpha, w.Beta, w.Gamma, w.Penalty)
}

// Search is the input of [Tune].
type Search struct {
	Play      replay.Play // the play; its policies are ignored
	From      Weights
	Objective Objective
	Seeds     int // seeds that judge the result, 5
	// Progress is called after each try with a lower bound of the finished share of the work, because a search
	// that finds nothing in its first round has no second round.
	Progress func(text string, share float64)
	work     float64 // done, in plays of half the time
}

// Tuning is the result of a search.
type Tuning struct {
	Weights Weights
	Tried   int
	// How much better the objective is than with the first weights, as a share, on traffic that was not used for
	// tuning. Below 0 it is worse.
	Gain   Estimate
	Others []Effect // the other objectives, and the tuned objective at other loads
}

// Effect is a gain in another figure.
type Effect struct {
	Name string
	Gain Estimate
}

// Loses reports whether the effect is a certain loss.
func (e *Effect) Loses() bool { return e.Gain.High < 0 }

// worth is the least gain for a step of the search. A smaller gain may be chance.
const worth = 0.01

// otherLoads are the shares of the load at which the result is judged too.
var otherLoads = []float64{0.7, 1.3}

// Tune searches the weights one after the other, in two rounds. It searches on the first half of the time
// with other seeds, and judges the found weights on the whole time.
func Tune(ctx context.Context, s Search) (*Tuning, error) {
	t := &Tuning{Weights: s.From}
	dev := s.Play.Dev()
	best, err := s.value(ctx, dev, t.Weights)
	if err != nil {
		return nil, err
	}
	for round := range 2 {
		before := t.Weights
		for _, step := range steps {
			for _, w := range step.tries(t.Weights) {
				v, err := s.value(ctx, dev, w)
				if err != nil {
					return nil, err
				}
				t.Tried++
				gain := s.Objective.gain(best, v)
				s.say("round %d, %s: %s %.4g, %+.1f %%", round+1, w.Policy(), s.Objective.Name, v, 100*gain)
				if gain > worth {
					best, t.Weights = v, w
				}
			}
		}
		if t.Weights == before {
			break
		}
	}
	return t, s.judge(ctx, t)
}

// step is one weight and the values to try.
type step struct {
	of     func(*Weights) *float64
	values []float64
}

var steps = []step{
	{func(w *Weights) *float64 { return &w.Alpha }, []float64{0, 1, 2, 4, 8}},
	{func(w *Weights) *float64 { return &w.Penalty }, []float64{0, 0.25, 0.5, 1, 2, 4}},
	{func(w *Weights) *float64 { return &w.Beta }, []float64{0.5, 0.7, 1, 1.4, 2}},
	{func(w *Weights) *float64 { return &w.Gamma }, []float64{0, 0.5, 1, 2, 4}},
}

// tries are the weights with other values of the step's weight.
func (s step) tries(from Weights) (all []Weights) {
	for _, v := range s.values {
		w := from
		if *s.of(&w) == v {
			continue
		}
		*s.of(&w) = v
		all = append(all, w)
	}
	return all
}

// devSeeds is the number of seeds that judge a step of the search.
const devSeeds = 2

func (s *Search) value(ctx context.Context, p replay.Play, w Weights) (float64, error) {
	runs, err := s.trials(ctx, p, w.Policy(), devSeeds)
	if err != nil {
		return 0, err
	}
	s.work += devSeeds
	return value(s.Objective.f, runs), nil
}

// trials plays p with a policy and several seeds, one play per core at a time.
func (s *Search) trials(ctx context.Context, p replay.Play, policy string, seeds int) ([]*Trial, error) {
	if _, err := policies.Params(policy); err != nil {
		return nil, err
	}
	runs, errs := make([]*Trial, seeds), make([]error, seeds)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			one := p
			one.Seed += uint64(i)
			o, rs, err := one.Once(ctx, policy)
			if err != nil {
				errs[i] = err
				return
			}
			runs[i] = &Trial{Outcome: o, Answers: measured(rs, Conversation)}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return runs, nil
}

// judge compares the found weights with the first weights, on the whole time.
func (s *Search) judge(ctx context.Context, t *Tuning) error {
	seeds := max(1, s.Seeds)
	s.work = float64(s.Most() * devSeeds) // the second round may have been left out
	s.say("judging %s at its own load", t.Weights.Policy())
	was, err := s.trials(ctx, s.Play, s.From.Policy(), seeds)
	if err != nil {
		return err
	}
	is, err := s.trials(ctx, s.Play, t.Weights.Policy(), seeds)
	if err != nil {
		return err
	}
	for _, o := range Objectives() {
		gain := compare(o.f, was, is, o.gain)
		if o.Name == s.Objective.Name {
			t.Gain = gain
			continue
		}
		t.Others = append(t.Others, Effect{o.Name, gain})
	}
	for _, share := range otherLoads {
		s.work += float64(4 * seeds)
		s.say("judging it at %g of the load", share)
		p := s.Play
		p.Scale *= share
		if was, err = s.trials(ctx, p, s.From.Policy(), seeds); err != nil {
			return err
		}
		if is, err = s.trials(ctx, p, t.Weights.Policy(), seeds); err != nil {
			return err
		}
		t.Others = append(t.Others, Effect{
			fmt.Sprintf("%s at %g of the load", s.Objective.Name, share),
			compare(s.Objective.f, was, is, s.Objective.gain),
		})
	}
	return nil
}

func (s *Search) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...), s.work/float64(s.Most()*devSeeds+s.judging()))
	}
}

// Most is the largest number of weights that are tried.
func (s *Search) Most() (tries int) {
	for _, step := range steps {
		tries += 2 * len(step.values)
	}
	return tries
}

// judging is the work of judging the result, in plays of half the time.
func (s *Search) judging() int { return 2 * 2 * max(1, s.Seeds) * (1 + len(otherLoads)) }
