package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// fleet is a simulated fleet. Its capacity depends on the number of prefill replicas and on the goal.
type fleet struct {
	replicas int
	capacity func(prefill, goal int) float64
	idle     [2]float64 // the share of good answers when the fleet is idle
	measured int        // measured answers; 0 means a million

	mu    sync.Mutex
	plays map[string]int
}

// simulate gives the share of good answers: all up to the capacity and fewer above it. At the capacity the
// share crosses 90 % of the share that is asked for.
func (f *fleet) simulate(_ context.Context, p replay.Play) (*replay.Outcome, error) {
	prefill, decode := 0, 0
	if n, _ := fmt.Sscanf(p.Cluster, "%dP%dD", &prefill, &decode); n != 2 {
		prefill = 0
	}
	if got := prefill + decode; prefill > 0 && got != f.replicas {
		return nil, fmt.Errorf("%s has %d replicas", p.Cluster, got)
	}
	f.mu.Lock()
	f.plays[fmt.Sprintf("%s %.4f", p.Cluster, p.Scale)]++
	f.mu.Unlock()
	o := &replay.Outcome{Measured: f.measured}
	o.Usual = f.share(p.Scale, f.capacity(prefill, 0), f.idle[0])
	o.Tight = f.share(p.Scale, f.capacity(prefill, 1), f.idle[1])
	return o, nil
}

// share falls linearly with the load. At the capacity it is 90 % of most.
func (f *fleet) share(load, capacity, most float64) float64 {
	return min(most, max(0, most*(0.9+0.4*(capacity-load)/capacity)))
}

func (f *fleet) question() *Question {
	f.plays = map[string]int{}
	f.measured = cmp.Or(f.measured, 1_000_000)
	return &Question{
		Play: replay.Play{Scale: 1, For: 10 * time.Minute}, Replicas: f.replicas, Goals: Goals(), Enough: 0.9,
		simulate: f.simulate,
	}
}

// Ask finds the same best shape and the same capacity as a search of every shape at every load.
func TestAdviceIsThatOfAllShapes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 24).Draw(t, "replicas")
		f := &fleet{replicas: n, idle: [2]float64{1, 1}}
		var peak, height, pool [2]float64
		for goal := range 2 {
			peak[goal] = rapid.Float64Range(1, float64(n-1)).Draw(t, "best prefill replicas")
			height[goal] = rapid.Float64Range(0.2, 6).Draw(t, "capacity")
			pool[goal] = rapid.Float64Range(0.2, 6).Draw(t, "capacity of one pool")
		}
		// The capacity has one peak, as in real fleets: below it there are too few prefill replicas, above it
		// too few decode replicas.
		f.capacity = func(prefill, goal int) float64 {
			if prefill == 0 {
				return pool[goal]
			}
			return max(0.01, height[goal]*(1-math.Abs(float64(prefill)-peak[goal])/float64(n)))
		}
		a, err := Ask(t.Context(), f.question())
		if err != nil {
			t.Fatal(err)
		}
		for goal, v := range a.Verdicts {
			most := 0.0
			for p := 1; p < n; p++ {
				most = max(most, f.capacity(p, goal))
			}
			if got := a.Shapes[v.Best].Holds[goal].Load; math.Abs(got/most-1) > 0.02 {
				t.Errorf("goal %d: %s holds %.3f; the best of all shapes %.3f", goal, a.Shapes[v.Best].Name, got, most)
			}
			if got := a.Shapes[v.Pool].Holds[goal].Load; math.Abs(got/pool[goal]-1) > 0.02 {
				t.Errorf("goal %d: one pool holds %.3f, want %.3f", goal, got, pool[goal])
			}
			worth := most / pool[goal]
			if (v.Answer == Split) != (worth > WorthIt) && math.Abs(worth/WorthIt-1) > 0.05 {
				t.Errorf("goal %d: %s, where the best shape holds %.3f times one pool", goal, v.Answer, worth)
			}
		}
		for what, count := range f.plays {
			if count > 1 {
				t.Errorf("%s was played %d times", what, count)
			}
		}
	})
}

// Every load plays the same requests.
func TestLoadsPlayTheSameRequests(t *testing.T) {
	q := &Question{Play: replay.Play{Scale: 2, For: 10 * time.Minute}, Replicas: 8}
	for _, load := range []float64{0.5, 1, 4} {
		p := q.at(3, load)
		if p.Cluster != "3P5D" || p.Scale != 2*load {
			t.Errorf("load %g: %s at %g, want 3P5D at %g", load, p.Cluster, p.Scale, 2*load)
		}
		if recorded := time.Duration(float64(p.For) * p.Scale); recorded != 20*time.Minute {
			t.Errorf("load %g plays %v of the recording, want 20m", load, recorded)
		}
	}
	if p := q.at(0, 1); p.Cluster != "8D" {
		t.Errorf("one pool is %s, want 8D", p.Cluster)
	}
}

// When an idle fleet misses the share that is asked for, the verdict states a lower share that is enough.
// When it hardly ever meets a goal, the search does not try that goal.
func TestWhatAnIdleFleetKeeps(t *testing.T) {
	f := &fleet{replicas: 4, idle: [2]float64{0.8, 0.2}, capacity: func(int, int) float64 { return 1 }}
	a, err := Ask(t.Context(), f.question())
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Verdicts[0]; math.Abs(got.Enough-0.76) > 1e-9 || got.Answer != Pool {
		t.Errorf("usual: %+v, want 0.76 to be enough, and no split", got)
	}
	if got := a.Verdicts[1]; got.Enough != 0 || got.Answer != Hopeless {
		t.Errorf("tight: %+v, want nothing to be enough", got)
	}
	for i, want := range []string{
		"(an eighth of this load) 80 % do, of which 95 % are asked for", "20 % of the answers",
	} {
		if got := a.text(i); !strings.Contains(got, want) {
			t.Errorf("the text is %q, want it to contain %q", got, want)
		}
	}
}

// The search ends even if no shape holds the load, or if the load is too small to measure.
func TestLoadsHaveEnds(t *testing.T) {
	for _, c := range []struct {
		capacity, want float64
	}{{100, 8}, {0.01, 0}} {
		f := &fleet{replicas: 2, idle: [2]float64{1, 1}, capacity: func(prefill, goal int) float64 {
			if prefill == 0 { // keeps the goals within reach
				return 1
			}
			return c.capacity
		}}
		a, err := Ask(t.Context(), f.question())
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Shapes[1].Holds[0].Load; got != c.want {
			t.Errorf("a capacity of %g is reported as %g, want %g", c.capacity, got, c.want)
		}
	}
}

func TestQuestionsThatCannotBeAnswered(t *testing.T) {
	good := Question{Replicas: 2, Goals: Goals(), Enough: 0.9, Play: replay.Play{Scale: 1}}
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		bend func(q *Question)
		says string
	}{
		{"one replica", func(q *Question) { q.Replicas = 1 }, "replicas is 1: want 2"},
		{"all answers", func(q *Question) { q.Enough = 1 }, "share of 1"},
		{"no goal", func(q *Question) { q.Goals = nil }, "no goal"},
		{"no traffic", func(q *Question) {
			q.simulate = func(context.Context, replay.Play) (*replay.Outcome, error) { return &replay.Outcome{}, nil }
		}, "--for is too short"},
		{"a play that fails", func(q *Question) {
			q.simulate = func(context.Context, replay.Play) (*replay.Outcome, error) { return nil, broken }
		}, "2D at an eighth of this load: broken"},
	} {
		q := good
		c.bend(&q)
		if _, err := Ask(t.Context(), &q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// A caller that stops the search gets the shapes that were tried completely, and a verdict if these shapes
// allow one.
func TestStoppedEarly(t *testing.T) {
	for _, plays := range []int{0, 1, 5, 12, 20, 40, 60, 100_000} {
		f := &fleet{replicas: 6, idle: [2]float64{1, 1}, capacity: func(prefill, goal int) float64 {
			return 1 + 0.1*float64(prefill) - 0.3*float64(goal)
		}}
		q := f.question()
		ctx, cancel := context.WithCancel(t.Context())
		var played atomic.Int64
		q.simulate = func(ctx context.Context, p replay.Play) (*replay.Outcome, error) {
			if played.Add(1) > int64(plays) {
				cancel()
				return nil, ctx.Err()
			}
			return f.simulate(ctx, p)
		}
		var share float64
		q.Progress = func(_ string, now float64) {
			if now < 0 || now > 1 {
				t.Errorf("the share of the work is %g", now)
			}
			share = now
		}
		a, err := Ask(ctx, q)
		stopped := ctx.Err() != nil
		cancel()
		if stopped != errors.Is(err, ErrStopped) || !stopped && (err != nil || a.Partial) {
			t.Fatalf("after %d plays: stopped %t, and %v", plays, stopped, err)
		}
		if a == nil {
			if share > 0 {
				t.Errorf("after %d plays %g of the work was done, but there is no report", plays, share)
			}
			continue
		}
		var out strings.Builder
		if err := Print(&out, a); err != nil {
			t.Fatal(err)
		}
		told := strings.Contains(out.String(), "The usual goal")
		if want := len(a.Shapes) > 1 && a.Shapes[0].Prefill == 0; told != want ||
			strings.Contains(out.String(), "No verdict") == want ||
			strings.Contains(out.String(), "Stopped early") != stopped {
			t.Errorf("after %d plays, with %d shapes:\n%s", plays, len(a.Shapes), out.String())
		}
		for _, shape := range a.Shapes {
			if shape.Now == nil || len(shape.Holds) != 2 {
				t.Errorf("after %d plays %s is reported, but was not tried completely", plays, shape.Name)
			}
		}
	}
}

func TestAdviceIsTold(t *testing.T) {
	f := &fleet{replicas: 4, idle: [2]float64{1, 1}, capacity: func(prefill, goal int) float64 {
		return [][]float64{{1.4, 0.4}, {1.3, 0.5}, {1, 0.6}, {0.5, 0.7}}[prefill][goal]
	}}
	a, err := Ask(t.Context(), f.question())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Print(&out, a); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nThe usual goal (first token in 5 s, 100 ms a token, no gap above 1 s): do not split: " +
			"one pool (4D) holds 1.4x (1.4x to 1.4x), and the best shape that splits (1P3D) 1.3x (1.3x to 1.3x). " +
			"A load is held where 90 % of the answers keep the goal.\n",
		"\nThe tight goal (first token in 2 s, 30 ms a token, no gap above 0.2 s): split, as 3P1D: " +
			"it holds 0.7x (0.7x to 0.7x), and one pool (4D) 0.4x (0.4x to 0.4x). ",
		" This load is more than that: it takes some 6 replicas.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	lines := strings.Split(out.String(), "\n")
	for i, shape := range []string{"4D", "1P3D", "2P2D", "3P1D"} {
		if row := strings.Fields(lines[1+i]); row[0] != shape {
			t.Errorf("row %d is of %s, want %s", i, row[0], shape)
		}
	}
}

// A difference of only a few answers does not decide the verdict.
func TestTooCloseToTell(t *testing.T) {
	f := &fleet{replicas: 3, idle: [2]float64{1, 1}, capacity: func(prefill, goal int) float64 {
		return [][]float64{{1, 1}, {1.1, 2}, {0.5, 0.5}}[prefill][goal]
	}}
	for measured, want := range map[int][2]Answer{100: {Close, Split}, 1_000_000: {Split, Split}} {
		f.measured = measured
		a, err := Ask(t.Context(), f.question())
		if err != nil {
			t.Fatal(err)
		}
		for goal, v := range a.Verdicts {
			if v.Answer != want[goal] {
				t.Errorf("%d answers, goal %d: %s, want %s (%+v and %+v)", measured, goal, v.Answer, want[goal],
					a.Shapes[v.Pool].Holds[goal], a.Shapes[v.Best].Holds[goal])
			}
		}
		var out strings.Builder
		if err := Print(&out, a); err != nil {
			t.Fatal(err)
		}
		if few := strings.Contains(out.String(), "Only 100 answers are counted"); few != (measured == 100) {
			t.Errorf("%d answers: the report warns that they are few: %v", measured, few)
		}
	}
}

// When all shapes hold the load there is no reason to split the fleet. When hardly any shape holds it, no
// capacity is reported as unlimited.
func TestNothingToDecide(t *testing.T) {
	for capacity, want := range map[float64]Answer{100: Beyond, 0.07: Pool} {
		f := &fleet{replicas: 3, idle: [2]float64{1, 1}, capacity: func(int, int) float64 { return capacity }}
		a, err := Ask(t.Context(), f.question())
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Verdicts[0].Answer; got != want {
			t.Errorf("every shape holds %g: %s, want %s: %s", capacity, got, want, a.text(0))
		}
	}
}

// falling makes a curve that never rises and is nearest to the given one. A curve that already falls stays
// as it is.
func TestFalling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 12).Draw(t, "values")
		got := slices.Clone(values)
		falling(got)
		for i := range got[1:] {
			if got[i+1] > got[i]+1e-12 {
				t.Fatalf("%v rises: %v", values, got)
			}
		}
		// The value at each point is a minimum over the starts of runs. For each start it takes the greatest
		// mean of the runs that end at or after the point.
		for i := range values {
			want := math.Inf(1)
			for from := range i + 1 {
				most := math.Inf(-1)
				for to := i + 1; to <= len(values); to++ {
					sum := 0.0
					for _, v := range values[from:to] {
						sum += v
					}
					most = max(most, sum/float64(to-from))
				}
				want = min(want, most)
			}
			if math.Abs(got[i]-want) > 1e-9 {
				t.Fatalf("%v became %v, want %v at %d", values, got, want, i)
			}
		}
	})
}
