package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
)

// rerun plays a recorded run on simulated engines, in virtual time.
type rerun struct {
	rec   *Recording
	tune  kernels.Tuning
	audit bool // check the laws of conservation after each step

	ranks   []*core.Engine
	batches []*kernels.Rank // of the step in progress
	seats   []seats         // the front end's counts of each rank
	told    time.Duration   // time of the last report to it

	now, before time.Duration // starts of the running step and of the step before
	next        int           // next request to send
	out         []Timing
	left        int
}

// seats are a rank's requests as vLLM's front end counts them: by the engines' reports, every 100 ms, and its
// own requests since.
type seats struct{ waiting, running int }

const seatReports = 100 * time.Millisecond

// recorder records a batch. Its time is known when all ranks have recorded their batches.
type recorder struct{ batch kernels.Rank }

func (r *recorder) Took(b *core.Batch) time.Duration {
	r.batch.Chunks = append(r.batch.Chunks[:0], b.Chunks...)
	r.batch.Decode, r.batch.Context = b.Decode, b.Context
	return 0
}

// simulate returns the times of each request's tokens.
func (r *Recording) simulate(tune kernels.Tuning, audit bool) ([]Timing, error) {
	s := &rerun{
		rec: r, tune: tune, audit: audit, out: make([]Timing, len(r.Requests)), left: len(r.Requests),
		seats: make([]seats, r.Ranks),
	}
	for range r.Ranks {
		rec := &recorder{}
		c := r.Engine
		c.Pace = rec
		s.ranks = append(s.ranks, core.New(c))
		s.batches = append(s.batches, &rec.batch)
	}
	for s.left > 0 {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	return s.out, nil
}

// step makes one step of all ranks. vLLM schedules a step while the previous step runs, so a step has only
// the requests that came before the previous step began.
func (s *rerun) step() error {
	if err := s.send(s.before); err != nil {
		return err
	}
	steps, idle := s.schedule()
	if idle {
		if s.next == len(s.rec.Requests) {
			return fmt.Errorf("%d requests never end", s.left)
		}
		s.now = max(s.now, s.rec.Requests[s.next].At)
		s.before = s.now
		return nil
	}
	took := kernels.Seconds(s.rec.stepTime(s.batches, s.tune))
	s.before, s.now = s.now, s.now+took
	for _, st := range steps {
		s.take(st.Outputs)
	}
	return s.check()
}

// schedule lets every rank choose its work.
func (s *rerun) schedule() (steps []core.Step, idle bool) {
	idle = true
	for i, e := range s.ranks {
		*s.batches[i] = kernels.Rank{Chunks: s.batches[i].Chunks[:0]}
		st := e.Step(s.now)
		idle = idle && st.Idle
		steps = append(steps, st)
	}
	return steps, idle
}

// send hands over the requests that were sent until now.
func (s *rerun) send(until time.Duration) error {
	for ; s.next < len(s.rec.Requests) && s.rec.Requests[s.next].At <= until; s.next++ {
		q := &s.rec.Requests[s.next]
		i := s.choose(q.At)
		err := s.ranks[i].Add(s.now,
			&core.Request{ID: fmt.Sprint(s.next), Prompt: q.Prompt, MaxTokens: q.Output, IgnoreEOS: true})
		if err != nil {
			return fmt.Errorf("request %d: %w", s.next, err)
		}
	}
	return nil
}

// choose is vLLM's load balancing between ranks: the fewest 4*waiting+running.
func (s *rerun) choose(at time.Duration) int {
	if at-s.told >= seatReports {
		s.told = at
		for i, e := range s.ranks {
			st := e.Stats()
			s.seats[i] = seats{st.Waiting, st.Running}
		}
	}
	best := 0
	for i, x := range s.seats {
		if b := s.seats[best]; 4*x.waiting+x.running < 4*b.waiting+b.running {
			best = i
		}
	}
	s.seats[best].waiting++
	return best
}

func (s *rerun) take(outputs []core.Output) {
	for i := range outputs {
		o := &outputs[i]
		if !o.First && !o.Finished {
			continue
		}
		var n int
		_, _ = fmt.Sscan(o.ID, &n) // this program made the id
		t := &s.out[n]
		if o.First {
			t.First = s.now - s.rec.Requests[n].At
		}
		if o.Finished {
			t.Last, t.Output = s.now-s.rec.Requests[n].At, o.Out
			s.left--
		}
	}
}

func (s *rerun) check() error {
	if !s.audit {
		return nil
	}
	for i, e := range s.ranks {
		if err := e.Audit(); err != nil {
			return fmt.Errorf("rank %d at %v: %w", i, s.now, err)
		}
	}
	if s.left == 0 {
		return s.checkEnd()
	}
	return nil
}

// checkEnd checks that every request got all its tokens and no block is held.
func (s *rerun) checkEnd() error {
	for i, t := range s.out {
		if t.Output != s.rec.Requests[i].Output {
			return fmt.Errorf("request %d got %d tokens, not %d", i, t.Output, s.rec.Requests[i].Output)
		}
	}
	if i := slices.IndexFunc(s.ranks, func(e *core.Engine) bool { return e.Stats().Usage != 0 }); i >= 0 {
		return fmt.Errorf("rank %d still holds blocks after all requests have ended", i)
	}
	return nil
}
