package decode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// stepper is an engine. Each of its steps gives every stream an event, and computes a part of the oldest
// local prompt.
type stepper struct {
	id      replica.ID
	speed   estimate.Speed // of the hardware
	factor  float64        // multiplies the time of a step
	tokens  int            // per event
	streams []*reading
	next    time.Time  // when its step ends
	in      []*reading // the load of the step: a new request is in the next one
	stands  time.Time  // end of a stop of the engine
}

// reading is one request and the reader of its answer.
type reading struct {
	l      *Lease
	prompt int // tokens to compute
	done   int // computed tokens
	kv     int
	left   int // tokens to generate
	whole  bool
	made   int // tokens
	first  time.Time
	noted  time.Time
	to     Progress
	away   time.Time // the client reads nothing until then
	unread int       // events
}

// streams is a pool of such engines.
type streams struct {
	p      *Pool
	e      []*stepper
	now    time.Time
	shared int  // leading tokens that all prompts of an engine share
	whole  bool // answers are not streamed, so their first tokens are not observable
	turns  bool // local prompts ask for their turns; none is longer than a piece
}

const chunk = 2048 // prompt tokens per step

func newStreams(n int, speed estimate.Speed) *streams {
	s := &streams{p: configured(), now: start}
	var members []replica.Replica
	for i := range n {
		id := replica.ID(fmt.Sprintf("d%d", i+1))
		members = append(members, engine(id, 100_000))
		s.e = append(s.e, &stepper{id: id, speed: speed, factor: 1, tokens: 1, next: start})
	}
	s.p.SetMembers(members, start)
	s.observe()
	return s
}

// askTurns lets local prompts ask for their turns, as nearly all do.
func (s *streams) askTurns() {
	settings := s.p.settings
	settings.Piece = 150 * time.Millisecond
	s.p.Configure(settings)
	var members []replica.Replica
	for _, e := range s.e {
		r := engine(e.id, 100_000)
		r.Facts.PrefixCaching = true
		members = append(members, r)
	}
	s.p.SetMembers(members, s.now)
	s.observe()
	s.turns = true
}

func (s *streams) observe() {
	for _, e := range s.e {
		used := 0
		for _, f := range e.streams {
			used += max(0, f.kv-s.shared) + f.made
		}
		s.p.Observe(e.id, load(s.now, len(e.streams), float64(used)/1.6e6), s.now)
	}
}

// send starts a request on an engine. Its prompt is computed there, or its blocks come from another replica.
func (s *streams) send(at, prompt, answer int, local bool) *reading {
	e := s.e[at]
	q := &Query{Model: "m", Tokens: prompt, MaxTokens: answer, Pieces: s.turns}
	for _, o := range s.e {
		if o != e {
			q.Avoid = append(q.Avoid, o.id)
		}
	}
	c, _, _ := s.p.Candidates(q, s.now, nil, nil)
	if len(c) == 0 {
		return nil
	}
	schedule := Schedule{AdmitAt: s.now, Local: local}
	if s.whole {
		schedule.UnseenArrival = 100 * time.Millisecond
	}
	l := s.p.Book(&c[0], q, schedule, s.now)
	if s.turns && local {
		if l.Next(s.now, nil).Upto != prompt {
			l.Release(s.now)
			return nil
		}
	}
	l.MarkSent(s.now)
	f := &reading{l: l, kv: prompt, left: answer, prompt: prompt, whole: s.whole}
	if !local {
		f.done = prompt
	}
	if e.streams = append(e.streams, f); len(e.streams) == 1 {
		e.next = s.now.Add(e.step())
	}
	return f
}

// step is the time of the step that begins now.
func (e *stepper) step() time.Duration {
	batch, kv := 0, 0
	prefill := 0.0
	e.in = e.in[:0]
	for _, f := range e.streams {
		switch {
		case f.done >= f.prompt:
			batch, kv = batch+1, kv+f.kv+f.made
			e.in = append(e.in, f)
		case prefill == 0:
			e.in = append(e.in, f)
			prefill = e.speed.Prefill(min(chunk, f.prompt-f.done), f.done) - e.speed.T0
		}
	}
	return seconds(e.factor * (e.speed.Step(batch, kv) + prefill))
}

// run lets time pass, and calls each a hundred times per second.
func (s *streams) run(d time.Duration, each func()) {
	end := s.now.Add(d)
	tick, poll := s.now, s.now
	for s.now.Before(end) {
		if !s.now.Before(tick) {
			tick = tick.Add(10 * time.Millisecond)
			if each != nil {
				each()
			}
		}
		if !s.now.Before(poll) {
			poll = poll.Add(time.Second)
			s.observe()
		}
		next := tick
		for _, e := range s.e {
			if len(e.streams) > 0 && e.next.Before(next) {
				next = e.next
			}
		}
		s.now = next
		for _, e := range s.e {
			if len(e.streams) > 0 && !e.next.After(s.now) {
				e.stepped(s)
			}
		}
	}
}

// stepped ends a step.
func (e *stepper) stepped(s *streams) {
	if s.now.Before(e.stands) {
		e.next = e.stands
		return
	}
	for _, f := range e.in {
		if f.done < f.prompt {
			f.done += chunk
		}
		if f.done >= f.prompt {
			e.generate(s, f)
		}
	}
	e.next = s.now.Add(e.step())
}

// generate gives a stream an event.
func (e *stepper) generate(s *streams, f *reading) {
	if f.first.IsZero() {
		f.first, f.noted = s.now, s.now
		if !f.whole {
			f.l.FirstToken(s.now)
		}
	}
	f.made += e.tokens
	if f.whole {
		if f.made >= f.left {
			f.l.FirstToken(s.now)
			f.l.Finish(f.made, 0, s.now)
			e.streams = slices.DeleteFunc(e.streams, func(o *reading) bool { return o == f })
		}
		return
	}
	f.unread++
	if over := f.made >= f.left; !over && s.now.Before(f.away) {
		return
	}
	if f.unread > 1 && !f.away.IsZero() {
		f.to.Held += f.away.Sub(f.noted)
	}
	f.to.Events += f.unread
	f.unread = 0
	if s.now.Sub(f.noted) >= ProgressEvery {
		f.noted = s.now
		f.l.Progress(f.to, s.now)
	}
	if f.made < f.left {
		return
	}
	f.to.Tokens = f.made
	f.l.Progress(f.to, s.now)
	decoding := s.now.Sub(f.first)
	if f.to.Held > decoding/10 {
		decoding = 0
	}
	f.l.Finish(f.made, decoding, s.now)
	e.streams = slices.DeleteFunc(e.streams, func(o *reading) bool { return o == f })
}

// slow says why the engine at is slow.
func (s *streams) slow(at int) string {
	cause, _ := s.p.Slow(s.e[at].id, false)
	return cause
}

// usual keeps n streams of 300 tokens running on each engine.
func (s *streams) usual(n int) func() {
	return func() {
		for i, e := range s.e {
			if len(e.streams) < n {
				s.send(i, 500, 300, false)
			}
		}
	}
}

// later returns, for each engine, how much later the answer to a new request is predicted to end.
func (s *streams) later() (seconds []float64) {
	c, _, _ := s.p.Candidates(&Query{Model: "m", Tokens: 500, MaxTokens: 300}, s.now, nil, nil)
	for i := range c {
		seconds = append(seconds, c[i].Later)
	}
	return seconds
}

// Running streams show within 1.5 seconds that a replica has become slow, before any answer has ended.
// Streams also show that it has recovered.
func TestStreamsUnderWayTellThatTheirReplicaIsSlow(t *testing.T) {
	for tokens, within := range map[int]time.Duration{
		1: 1500 * time.Millisecond, 3: 2 * time.Second, 10: 6 * time.Second,
	} {
		t.Run(fmt.Sprintf("%d tokens an event", tokens), func(t *testing.T) {
			s := newStreams(2, estimate.DefaultSpeed())
			for _, e := range s.e {
				e.tokens = tokens
			}
			s.run(20*time.Second, s.usual(4))
			for i := range s.e {
				if why := s.slow(i); why != "" {
					t.Errorf("d%d, well, is slow: %s", i+1, why)
				}
			}
			s.e[0].factor = 20
			s.run(within, nil)
			if s.slow(0) == "" {
				t.Errorf("20 times as slow for %v, and nobody knows", within)
			}
			if later := s.later(); later[0] < 1 || later[1] != 0 {
				t.Errorf("answers are taken to end %.2f s later, want some seconds on d1 alone", later)
			}
			s.e[0].factor = 1
			s.run(3*time.Second, s.usual(4))
			if why := s.slow(0); why != "" {
				t.Errorf("well again for three seconds: %s", why)
			}
			if later := s.later(); later[0] > 0.5 {
				t.Errorf("answers are still taken to end %.2f s later on d1", later[0])
			}
		})
	}
}

// Streams do not call a healthy replica slow, whatever its load.
func TestStreamsOfABusyReplicaDoNotCallItSlow(t *testing.T) {
	profile := estimate.DefaultSpeed()
	costly := profile
	costly.D1 *= 10
	type scene struct {
		*streams
		n int // calls
	}
	for _, tt := range []struct {
		name  string
		speed estimate.Speed
		more  func(s *scene) // a hundred times a second, beside two streams on each engine
	}{
		{"a large batch", profile, func(s *scene) {
			if len(s.e[0].streams) < 200 {
				s.send(0, 2000, 500, false)
			}
		}},
		{"a large batch where sequences are costly", costly, func(s *scene) {
			if len(s.e[0].streams) < 200 {
				s.send(0, 2000, 500, false)
			}
		}},
		{"bursts", profile, func(s *scene) {
			for range 100 {
				if s.n%300 == 0 {
					s.send(0, 3000, 100, false)
				}
			}
		}},
		{"long prompts", profile, func(s *scene) {
			if s.n%200 == 0 {
				s.send(0, 50_000, 20, true)
			}
		}},
		{"long prompts without end", profile, func(s *scene) {
			if s.n%50 == 0 {
				s.send(0, 16_000, 20, true)
			}
		}},
		{"bursts of short prompts", profile, func(s *scene) {
			for range 20 {
				if s.n%100 == 0 {
					s.send(0, 1000, 20, true)
				}
			}
		}},
		{"a standstill", profile, func(s *scene) {
			if s.n%1000 == 500 {
				s.e[0].stands = s.now.Add(5 * time.Second)
			}
		}},
		{"clients that read nothing for a while", profile, func(s *scene) {
			if s.n%150 == 0 {
				for _, f := range s.e[0].streams {
					f.away = s.now.Add(700 * time.Millisecond)
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scene{streams: newStreams(2, tt.speed)}
			usual := s.usual(2)
			s.run(time.Minute, func() {
				usual()
				tt.more(s)
				s.n++
				for i := range s.e {
					if _, slowed := s.p.members.All[i].learned.Slowed(); slowed {
						t.Fatalf("d%d is taken to have become slow after %v", i+1, s.now.Sub(start))
					}
				}
			})
		})
	}
}

// For any traffic and hardware, streams teach no speed below the true speed of a replica.
func TestStreamsTeachNothingSlowerThanTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speed := estimate.DefaultSpeed()
		for _, c := range []*float64{&speed.A, &speed.B, &speed.D0, &speed.D1, &speed.D2} {
			*c *= rapid.SampledFrom([]float64{0.5, 1, 3}).Draw(t, "coefficient")
		}
		s := newStreams(2, speed)
		tokens := rapid.IntRange(1, 4).Draw(t, "tokens")
		for _, e := range s.e {
			e.tokens = tokens
		}
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		split, local := rapid.IntRange(1, 10).Draw(t, "split"), rapid.IntRange(0, 3).Draw(t, "local")
		s.run(4*time.Second, func() {
			at := min(rnd.IntN(len(s.e)), rnd.IntN(len(s.e))) // some have more to do than others
			if rnd.IntN(100) < split {
				for range 1 + rnd.IntN(20)*rnd.IntN(2) {
					s.send(at, 1+rnd.IntN(8000), 1+rnd.IntN(600), false)
				}
			}
			if rnd.IntN(100) < local {
				s.send(at, 1+rnd.IntN(30_000), 1+rnd.IntN(600), true)
			}
			for _, m := range s.p.members.All {
				at, slowed := m.learned.Slowed()
				if !slowed || !at.Equal(m.learned.Steps.Learned()) || s.now.Sub(at) > 10*time.Millisecond {
					continue
				}
				for _, batch := range []int{1, usualBatch, max(m.batch(), 1)} {
					tokens := batch * estimate.UsualTokens
					is, truth := s.p.learned.speed(m).Step(batch, tokens), speed.Step(batch, tokens)
					most := estimate.SlopesOff * truth
					if batch == 1 {
						// A step of one sequence was not observed: all steps had more. The cost of one sequence is
						// too small a part of these steps to be learned. So if it is three times the profile's, a
						// step of one sequence is predicted twice too long.
						most *= 2
					}
					if is > most {
						t.Fatalf("after %v the learned time of a step of %d is %.1f ms, want %.1f",
							s.now.Sub(start), batch, is*1e3, truth*1e3)
					}
				}
			}
		})
	})
}

// One quick answer ends the slowness of a replica, because a slow replica makes no quick answer. One request
// was enough to try the replica.
func TestOneQuickAnswerTellsThatAReplicaHasRecovered(t *testing.T) {
	s := newStreams(2, estimate.DefaultSpeed())
	s.run(10*time.Second, s.usual(2))
	s.e[0].factor = 20
	s.send(0, 500, 100, false)
	s.run(2*time.Second, nil)
	if s.slow(0) == "" {
		t.Fatal("it is not known to be slow: this test tests nothing")
	}
	for len(s.e[0].streams) > 0 {
		s.run(time.Second, nil)
	}
	s.e[0].factor = 1
	s.send(0, 500, 40, false)
	s.run(time.Second, nil)
	if why := s.slow(0); why != "" {
		t.Errorf("still slow: %s", why)
	}
	if later := s.later(); later[0] > 0.5 {
		t.Errorf("answers are still taken to end %.2f s later there", later[0])
	}
}

// A stream teaches nothing if its steps cannot be timed: of several answers in one stream some end before
// the others, and a replica without load reports may be computing prompts again.
func TestStreamsThatCannotTellTeachNothing(t *testing.T) {
	for name, blind := range map[string]func(s *streams){
		"several answers": func(s *streams) {
			for _, f := range s.e[0].streams {
				f.l.entry.Sequences = 4
			}
		},
		"no report": func(s *streams) {
			s.p.Configure(func() Settings { o := s.p.settings; o.LoadTTL = time.Nanosecond; return o }())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreams(2, estimate.DefaultSpeed())
			s.run(20*time.Second, s.usual(4))
			s.e[0].factor = 20
			blind(s)
			s.run(2*time.Second, nil)
			if why := s.slow(0); why != "" {
				t.Errorf("it is taken for slow: %s", why)
			}
		})
	}
}

// Two equal engines have steps that grow faster than their load. One has 20 streams, the other 120, so their
// fits differ, mostly for an empty step. The first engine does not seem slower once its streams have ended.
func TestAReplicaDoesNotSeemSlowerOnceItIsIdle(t *testing.T) {
	s := newStreams(2, estimate.DefaultSpeed())
	keep := []int{20, 120}
	each := func() {
		for i, e := range s.e {
			e.factor = 1 + float64(len(e.streams))/60
			if len(e.streams) < keep[i] {
				s.send(i, 500, 300, false)
			}
		}
	}
	s.run(40*time.Second, each)
	busy := s.later()[0]
	keep[0] = 0
	s.run(20*time.Second, each)
	if n := len(s.e[0].streams); n > 0 {
		t.Fatalf("%d streams still run on the engine that should be idle", n)
	}
	if idle := s.later()[0]; idle > busy+0.1 {
		t.Errorf("answers end %.2f s later on the idle engine, and %.2f s later while it had streams", idle, busy)
	}
}
