package suite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
)

// goodShare is the part of the requests that has to keep the SLO at a load for it to be within capacity.
const goodShare = 0.9

// Search bounds: from the first guess in steps of searchStep until the capacity is between two loads, then
// the gap is halved so many times.
const (
	searchStep    = 1.3
	searchHalves  = 3
	searchPatient = 8 // steps, after which a search gives up
)

// search names a capacity that has been looked for.
type search struct {
	Setting // without a load
	guess   float64
}

// found is a capacity: two loads close together, at one of which enough requests are good and at the other
// not.
type found struct {
	below, above *Trial
}

// capacity finds the largest load at which the share of good requests is enough, near a guess.
func (l *lab) capacity(ctx context.Context, s Setting, guess float64) (*found, error) {
	return l.searches.get(search{s.at(0), guess}, func() (*found, error) {
		f := &found{}
		return f, f.search(ctx, l, s, guess)
	})
}

func (f *found) search(ctx context.Context, l *lab, s Setting, load float64) error {
	for range searchPatient {
		if err := f.try(ctx, l, s.at(load)); err != nil {
			return err
		}
		switch {
		case f.above == nil:
			load *= searchStep
			continue
		case f.below == nil:
			load /= searchStep
			continue
		}
		break
	}
	if f.below == nil || f.above == nil {
		return fmt.Errorf("no capacity near load %.3g for %v", load, s)
	}
	for range searchHalves {
		if err := f.try(ctx, l, s.at(math.Sqrt(f.below.Setting.Load*f.above.Setting.Load))); err != nil {
			return err
		}
	}
	l.say("capacity: %v: load %.4g", s.at(0), f.load(nil))
	return nil
}

// try plays s and narrows the gap.
func (f *found) try(ctx context.Context, l *lab, s Setting) error {
	r, err := l.run(ctx, s)
	if err != nil {
		return err
	}
	if value(good, []*Trial{r}) >= goodShare {
		f.below = r
	} else {
		f.above = r
	}
	return nil
}

// load is where the line through the two loads' shares of good requests crosses what is enough. times says
// how often each session counts, nil once.
func (f *found) load(times []float64) float64 {
	share := func(r *Trial) float64 {
		if times == nil {
			return value(good, []*Trial{r})
		}
		return sampleOf(good, []*Trial{r}, nil).sum(times)
	}
	return cross(f.below.Setting.Load, share(f.below), f.above.Setting.Load, share(f.above))
}

// cross draws a line through two points and returns where it reaches goodShare, at most one gap outside of
// them.
func cross(low, atLow, high, atHigh float64) float64 {
	if atLow <= atHigh {
		return (low + high) / 2
	}
	at := low + (high-low)*(atLow-goodShare)/(atLow-atHigh)
	return min(max(at, 2*low-high), 2*high-low)
}

// crossing is a capacity whose loads' shares can be summed up again and again.
type crossing struct {
	low, high    float64
	below, above *sample
	policy       string
	sessions     int
}

func (f *found) crossing() crossing {
	below, above := []*Trial{f.below}, []*Trial{f.above}
	return crossing{
		f.below.Setting.Load, f.above.Setting.Load, sampleOf(good, below, nil), sampleOf(good, above, nil),
		f.below.Setting.Policy, units(below, above),
	}
}

func (c *crossing) at(times []float64) float64 {
	return cross(c.low, c.below.sum(times), c.high, c.above.sum(times))
}

// capacities finds those of several policies, over seeds; the guess is the same for all.
func (l *lab) capacities(
	ctx context.Context, s Setting, guess float64, policies []string, seeds int,
) (map[string][]crossing, error) {
	var mu sync.Mutex
	out := map[string][]crossing{}
	var wg sync.WaitGroup
	var failed error
	for _, name := range policies {
		out[name] = make([]crossing, seeds)
		for seed := range seeds {
			wg.Go(func() {
				one := s.with(name)
				one.Seed = uint64(seed + 1)
				f, err := l.capacity(ctx, one, guess)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = err
					return
				}
				out[name][seed] = f.crossing()
			})
		}
	}
	wg.Wait()
	return out, failed
}

// mean is the capacity over the seeds.
func mean(cs []crossing, times []float64) float64 {
	sum := 0.0
	for i := range cs {
		sum += cs[i].at(times)
	}
	return sum / float64(len(cs))
}

// gain says by which share the capacity of ours is above the best of the others.
func gain(ours []crossing, others map[string][]crossing) Estimate {
	sessions := 0
	each := func(cs []crossing) {
		for _, c := range cs {
			sessions = max(sessions, c.sessions)
		}
	}
	each(ours)
	names := make([]string, 0, len(others))
	for name, cs := range others {
		each(cs)
		names = append(names, name)
	}
	slices.Sort(names)
	once := ones(sessions)
	best := slices.MaxFunc(names,
		func(a, b string) int { return cmp.Compare(mean(others[a], once), mean(others[b], once)) })
	e := bootstrap(sessions,
		func(times []float64) float64 { return mean(ours, times)/mean(others[best], times) - 1 })
	e.Note = fmt.Sprintf("load %.3f", mean(ours, once))
	for _, name := range names {
		e.Note += fmt.Sprintf(", %s %.3f", name, mean(others[name], once))
	}
	return e
}
