package advise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Loads are tried on a grid, so that a play for one goal serves another goal. A step is a fifth more. The
// grid goes from an eighth of the traffic's own load to eight times as much. Plays at an overload take the
// longest, so the search goes up in small steps.
const (
	loadsADoubling = 4
	most           = 3 * loadsADoubling
)

func loadOf(step int) float64 { return math.Exp2(float64(step) / loadsADoubling) }

// shapesAtOnce is the number of shapes that are tried before the neighbours of the best shape.
const shapesAtOnce = 8

// search is the state of a search.
type search struct {
	q        *Question
	stride   int
	slots    chan struct{} // limits the plays that run at the same time
	verdicts []Verdict     // by goal; with the share of good answers that is enough
	about    []int         // by goal: the step of loads that is tried first

	mu     sync.Mutex // guards the following
	shapes map[int]*Shape
	plays  map[play]*replay.Outcome
	filled int // shapes with a known result
}

// play is a shape, and the step of a load.
type play struct{ prefill, step int }

func newSearch(q *Question) *search {
	s := &search{
		q: q, stride: 1 + (q.Replicas-2)/shapesAtOnce, slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		about: make([]int, len(q.Goals)), shapes: map[int]*Shape{}, plays: map[play]*replay.Outcome{},
	}
	if q.simulate == nil {
		q.simulate = played
	}
	return s
}

// all tries the shapes.
func (s *search) all(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.coarse(ctx); err != nil {
		return err
	}
	for i := range s.q.Goals {
		if err := s.refine(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// settle sets the share of good answers that is enough for each goal: by one pool or the even split,
// whichever is better, almost without load.
func (s *search) settle(ctx context.Context) error {
	for _, g := range s.q.Goals {
		v := Verdict{Goal: g}
		for _, prefill := range []int{0, s.q.Replicas / 2} {
			o, err := s.play(ctx, play{prefill, -most})
			if err != nil {
				return err
			}
			v.Idle = max(v.Idle, g.kept(o))
		}
		v.Enough = replay.Enough(s.q.Enough, v.Idle)
		s.verdicts = append(s.verdicts, v)
	}
	return nil
}

// coarse tries one pool, which gives the approximate loads, and evenly spaced shapes.
func (s *search) coarse(ctx context.Context) error {
	s.say("one pool first, then shapes that split, each at several loads")
	if err := s.try(ctx, []int{0}); err != nil {
		return err
	}
	for i, held := range s.shapes[0].Holds {
		if held.Load > 0 {
			s.about[i] = int(loadsADoubling * math.Log2(held.Load))
		}
	}
	// the even split also sets what is enough, so that some shape holds a load
	wanted := []int{s.q.Replicas / 2}
	for p := 1; p < s.q.Replicas; p += s.stride {
		wanted = append(wanted, p)
	}
	return s.try(ctx, wanted)
}

// refine tries the neighbours of the best split shape, closer and closer, as long as a neighbour is better.
func (s *search) refine(ctx context.Context, goal int) error {
	for stride := max(1, s.stride/2); stride >= 1; stride /= 2 {
		for best := 0; best != s.best(goal); {
			best = s.best(goal)
			if err := s.try(ctx, []int{max(1, best-stride), best + stride}); err != nil {
				return err
			}
		}
	}
	return nil
}

// best is the number of prefill replicas in the splitting shape that holds most.
func (s *search) best(goal int) int {
	best := 1
	for p, shape := range s.shapes {
		if p == 0 {
			continue
		}
		more := cmp.Compare(shape.Holds[goal].Load, s.shapes[best].Holds[goal].Load)
		if cmp.Or(more, cmp.Compare(best, p)) > 0 { // among equals the fewest prefill replicas
			best = p
		}
	}
	return best
}

// found are the finished shapes, in order.
func (s *search) found() (shapes []Shape) {
	for _, p := range slices.Sorted(maps.Keys(s.shapes)) {
		if s.shapes[p].done {
			shapes = append(shapes, *s.shapes[p])
		}
	}
	return shapes
}

// try plays the shapes that exist and were not tried yet, in parallel.
func (s *search) try(ctx context.Context, prefills []int) error {
	var wg sync.WaitGroup
	var failed error
	for _, p := range prefills {
		if p < 0 || p >= s.q.Replicas || s.shapes[p] != nil {
			continue
		}
		shape := &Shape{Name: cluster.ShapeOf(p, s.q.Replicas), Prefill: p}
		s.mu.Lock() // earlier shapes are counted meanwhile
		s.shapes[p] = shape
		s.mu.Unlock()
		wg.Go(func() {
			err := s.fill(ctx, shape)
			s.mu.Lock()
			defer s.mu.Unlock()
			failed = cmp.Or(failed, err)
		})
	}
	wg.Wait()
	return failed
}

// fill plays a shape at the traffic's own load, and at the loads that its limit needs.
func (s *search) fill(ctx context.Context, shape *Shape) (err error) {
	if shape.Now, err = s.play(ctx, play{shape.Prefill, 0}); err != nil {
		return err
	}
	shape.Holds = make([]Held, len(s.q.Goals))
	told := shape.Name + " holds"
	for i := range s.verdicts {
		v := &s.verdicts[i]
		if v.Enough == 0 {
			continue
		}
		if shape.Holds[i], err = s.holds(ctx, shape.Prefill, v, s.about[i]); err != nil {
			return err
		}
		told += fmt.Sprintf(" %s at the %s goal,", times(shape.Holds[i].Load), v.Goal.Name)
	}
	s.mu.Lock()
	shape.done = true
	s.filled++
	told = fmt.Sprintf("%s %d plays so far", told, len(s.plays))
	s.mu.Unlock()
	s.say(told)
	return nil
}

// expected estimates how many shapes are tried: one pool, the evenly spaced shapes, and two neighbours of
// the best shape for each goal. The caller holds mu.
func (s *search) expected() int {
	evenly := min(s.q.Replicas-1, shapesAtOnce+1)
	return max(len(s.shapes), min(s.q.Replicas, 1+evenly+2*len(s.q.Goals)))
}

// holds finds the largest load with enough good answers, and its range.
func (s *search) holds(ctx context.Context, prefill int, v *Verdict, about int) (Held, error) {
	for _, deviations := range []float64{0, -1, 1} {
		_, _, err := bracket(about, func(step int) (float64, error) {
			o, err := s.play(ctx, play{prefill, step})
			if err != nil {
				return 0, err
			}
			return v.share(o, deviations) - v.Enough, nil
		})
		if err != nil {
			return Held{}, err
		}
	}
	return Held{
		Load: s.crossing(prefill, v, 0), Low: s.crossing(prefill, v, -1), High: s.crossing(prefill, v, 1),
	}, nil
}

// share is the share of the answers that keep the goal, with this number of standard deviations added.
func (v *Verdict) share(o *replay.Outcome, deviations float64) float64 {
	kept := v.Goal.kept(o)
	return kept + deviations*math.Sqrt(kept*(1-kept)/float64(o.Measured))
}

// crossing returns the load at which a shape has just enough good answers. A single answer can make the
// share rise with the load. So crossing uses the nearest curve that never rises.
func (s *search) crossing(prefill int, v *Verdict, deviations float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var loads, shares []float64
	for step := -most; step <= most; step++ {
		if o := s.plays[play{prefill, step}]; o != nil {
			loads, shares = append(loads, loadOf(step)), append(shares, v.share(o, deviations))
		}
	}
	falling(shares)
	above := slices.IndexFunc(shares, func(share float64) bool { return share < v.Enough })
	switch {
	case above < 0:
		return loads[len(loads)-1]
	case above == 0:
		return 0
	}
	part := (shares[above-1] - v.Enough) / (shares[above-1] - shares[above])
	return loads[above-1] + part*(loads[above]-loads[above-1])
}

// falling replaces values by the nearest values, by least squares, that never rise: it pools neighbours that
// do.
func falling(values []float64) {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	for _, v := range values {
		pools = append(pools, pool{v, 1})
		for n := len(pools); n > 1; n-- {
			last, before := pools[n-1], pools[n-2]
			if last.sum/float64(last.n) <= before.sum/float64(before.n) {
				break
			}
			pools = append(pools[:n-2], pool{before.sum + last.sum, before.n + last.n})
		}
	}
	at := 0
	for _, p := range pools {
		for range p.n {
			values[at] = p.sum / float64(p.n)
			at++
		}
	}
}

// bracket finds the largest step of loads with something to spare, and the next step, which has nothing to
// spare. It moves away from its start in growing steps, then halves the interval. If all loads have
// something to spare, or none has, one of the two steps is outside of the loads.
func bracket(step int, spare func(step int) (float64, error)) (below, above int, err error) {
	below, above = -most-1, most+1
	for stride := 1; above-below > 1; stride *= 2 {
		left, err := spare(step)
		if err != nil {
			return below, above, err
		}
		if left >= 0 {
			below = step
		} else {
			above = step
		}
		switch {
		case above > most:
			step = min(most, below+stride)
		case below < -most:
			step = max(-most, above-stride)
		default:
			step = (below + above) / 2
		}
	}
	return below, above, nil
}

// play plays a shape at a load once, and remembers the result.
func (s *search) play(ctx context.Context, key play) (*replay.Outcome, error) {
	s.mu.Lock()
	o := s.plays[key]
	s.mu.Unlock()
	if o != nil {
		return o, nil
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.slots }()
	where := cluster.ShapeOf(key.prefill, s.q.Replicas) + " at " + times(loadOf(key.step))
	o, err := s.q.simulate(ctx, s.q.at(key.prefill, loadOf(key.step)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if o.Measured == 0 {
		return nil, fmt.Errorf("%s: no request to measure; --for is too short, or nothing fits the engines", where)
	}
	s.mu.Lock()
	s.plays[key] = o
	s.mu.Unlock()
	return o, nil
}

func (s *search) say(text string) {
	if s.q.Progress == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.q.Progress(text, float64(s.filled)/float64(s.expected()))
}
