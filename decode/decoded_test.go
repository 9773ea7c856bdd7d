package decode

import (
	"math"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// knows fails if the learned step time of an engine for this number of sequences is wrong by more than a
// tenth.
func (s *streams) knows(t *testing.T, at, sequences, tokens int) {
	t.Helper()
	s.knowsWithin(t, at, sequences, tokens, 0.1)
}

func (s *streams) knowsWithin(t *testing.T, at, sequences, tokens int, within float64) {
	t.Helper()
	is, truth := s.p.learned.speed(s.p.members.All[at]), s.e[at].speed
	got, want := is.Step(sequences, sequences*tokens), truth.Step(sequences, sequences*tokens)
	if math.Abs(got/want-1) > within {
		t.Errorf("d%d: the learned time of a step of %d sequences is %.1f ms, want %.1f",
			at+1, sequences, got*1e3, want*1e3)
	}
}

// unlikeTheProfile is the speed of an engine whose speed must be learned.
func unlikeTheProfile() estimate.Speed {
	s := estimate.DefaultSpeed()
	for _, x := range []*float64{&s.T0, &s.A, &s.B, &s.D0, &s.D1, &s.D2} {
		*x *= 2
	}
	return s
}

// A replica that gets fewer requests than before is no slower. Its answers took as long as their load at the
// time required, not the load at their end. A router that thinks it slow sends it still less.
func TestALighterLoadMakesNoReplicaSlow(t *testing.T) {
	s := newStreams(2, unlikeTheProfile())
	n, worst := 60, 0.0
	s.run(3*time.Minute, func() {
		for i, e := range s.e {
			if len(e.streams) < n {
				s.send(i, 4000, 2000, false)
			}
		}
		if s.now.Sub(start) > time.Minute {
			if n = 60; s.now.Sub(start) > 70*time.Second {
				n = 0 // d1 gets nothing more, d2 all
				if len(s.e[1].streams) < 120 {
					s.send(1, 4000, 2000, false)
				}
			}
			later := s.later()
			worst = max(worst, later[0], later[1])
		}
	})
	if worst > 0.5 {
		t.Errorf("two equal replicas: one is predicted to end an answer of 300 tokens %.1f s later", worst)
	}
	s.knows(t, 0, 60, 5000)
	s.knows(t, 1, 120, 5000)
}

// Prompts do not change the learned length of steps. The engine computes a whole prompt in three steps, and
// streams decode in each of the three. The router assumes one step, so it learns steps beside such prompts 12
// % too short.
func TestPromptsBesideAnswersMakeNoStepLonger(t *testing.T) {
	for name, c := range map[string]struct {
		turns         bool
		prompt, every int     // d1 prefills for nearly half of its time
		within        float64 // of a step of d1
	}{
		"in turns, each a step":         {true, 2000, 17, 0.1},
		"whole, each three steps of it": {false, 6000, 50, 0.125},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreams(2, unlikeTheProfile())
			if c.turns {
				s.askTurns()
			}
			calls := 0
			s.run(2*time.Minute, func() {
				for i, e := range s.e {
					if len(e.streams) < 20 {
						s.send(i, 2000, 200+10*(calls%40), false)
					}
				}
				if calls++; calls%c.every == 0 {
					s.send(0, c.prompt, 20, true)
				}
			})
			s.knowsWithin(t, 0, 20, 2200, c.within)
			s.knows(t, 1, 20, 2200)
			if later := s.later(); later[0] > 0.1 || later[1] > 0.1 {
				t.Errorf("answers are predicted to end %.2f s later, want 0", later)
			}
			if held := s.p.members.All[0].learned.PerToken(); held < 1.3 || held > 2.5 {
				t.Errorf("learned: %.1f steps per token, want nearly 2", held)
			}
			if held := s.p.members.All[1].learned.PerToken(); held > 1.05 {
				t.Errorf("learned: %.2f steps per token without prefills, want 1", held)
			}
		})
	}
}

// shortPromptsBeside keeps 60 streams on d1. Once in every calls it lets both engines compute a short prompt.
func (s *streams) shortPromptsBeside(every int) func() {
	calls := 0
	return func() {
		if len(s.e[0].streams) < 60 {
			s.send(0, 6000, 400, false)
		}
		if calls++; calls%every == 0 {
			s.send(0, 50+calls%400, 20, true)
			s.send(1, 50+calls%400, 20, true)
		}
	}
}

// Decoding in the same step does not make a prompt slower: a new request waits for the running step, and
// streams have that step in any case.
func TestAnswersBesidePromptsMakeNoPrefillLonger(t *testing.T) {
	s := newStreams(2, unlikeTheProfile())
	s.askTurns()
	s.run(2*time.Minute, s.shortPromptsBeside(20))
	beside, alone := s.p.learned.speed(s.p.members.All[0]), s.p.learned.speed(s.p.members.All[1])
	step := unlikeTheProfile().Step(60, 360_000)
	if got, want := beside.Prefill(200, 0), alone.Prefill(200, 0); got > want+step/4 {
		t.Errorf("a prompt of 200 tokens is predicted to take %.1f ms beside streams, and %.1f ms without streams",
			got*1e3, want*1e3)
	}
	c, _, _ := s.p.Candidates(&Query{Model: "m", Tokens: 200, MaxTokens: 20}, s.now, nil, nil)
	if got, want := c[0].Local.Took()-c[1].Local.Took(), step; math.Abs(got/want-1) > 0.4 {
		t.Errorf("a prompt is predicted to wait %.1f ms for 60 streams, want about one and a half steps of %.1f",
			got*1e3, want*1e3)
	}
}

// A step reads all tokens of each sequence, including the tokens that sequences share and that take room
// once.
func TestSharedPrefixesAreReadByEach(t *testing.T) {
	s := newStreams(2, unlikeTheProfile())
	s.shared = 3500
	calls := 0
	s.run(2*time.Minute, func() {
		calls++
		for i, e := range s.e {
			if most := []int{10, 80}[(calls/2000+i)%2]; len(e.streams) < most {
				s.send(i, 4000, 300, false)
			}
		}
	})
	s.knows(t, 0, 10, 4150)
	s.knows(t, 1, 80, 4150)
}

// An answer whose first token cannot be observed counts as decoding from the time when the token should be
// there. It teaches as much about the steps beside it.
func TestAnswersThatAreNotStreamedAreDecoded(t *testing.T) {
	s := newStreams(1, unlikeTheProfile())
	calls := 0
	s.run(2*time.Minute, func() {
		if calls++; calls%200 == 0 {
			s.send(0, 2000, 100, false)
		}
		if s.whole = true; len(s.e[0].streams) < 60 {
			s.send(0, 2000, 300+10*(calls%40), false)
		}
		s.whole = false
	})
	m := s.p.members.All[0]
	if got := m.decodes(); got.Sequences < 54 || got.Tokens < 54*2000 {
		t.Errorf("predicted load: %.0f sequences of %.0f tokens, want 60 of 2,000 and more",
			got.Sequences, got.Tokens)
	}
	s.knows(t, 0, 60, 2300)
}

// A wrong configured speed of prefills does not change what is learned about decode steps, and the other way
// round.
func TestASpeedThatIsSaidMakesNoOtherOneWrong(t *testing.T) {
	truth := unlikeTheProfile()
	for name, said := range map[string]estimate.Speed{
		"steps twice as long":      estimate.Rates(0, 0.5/truth.D0),
		"steps ten times as long":  estimate.Rates(0, 0.1/truth.D0),
		"steps a tenth as long":    estimate.Rates(0, 10/truth.D0),
		"prompts 15 times as long": estimate.Rates(2000, 0),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreams(2, truth)
			s.askTurns()
			settings := s.p.settings
			settings.Speed = said
			s.p.Configure(settings)
			s.run(2*time.Minute, s.shortPromptsBeside(19))
			if said.KnowsPrefill() {
				for i, m := range s.p.members.All {
					is := s.p.learned.speed(m)
					if got, want := is.Step(60, 360_000), truth.Step(60, 360_000); math.Abs(got/want-1) > 0.25 {
						t.Errorf("d%d: the learned step time is %.1f ms, want %.1f", i+1, got*1e3, want*1e3)
					}
				}
				return
			}
			for i, m := range s.p.members.All {
				is := s.p.learned.speed(m)
				if got, want := is.Prefill(2000, 0), truth.Prefill(2000, 0); math.Abs(got/want-1) > 0.35 {
					t.Errorf("d%d: 2,000 tokens are predicted to take %.1f ms, want %.1f", i+1, got*1e3, want*1e3)
				}
			}
		})
	}
}

// A prompt without an observable end does not make steps longer either.
func TestPromptsOfAnswersThatAreNotStreamedMakeNoStepLonger(t *testing.T) {
	s := newStreams(1, unlikeTheProfile())
	s.askTurns()
	calls := 0
	s.run(4*time.Minute, func() {
		if calls++; calls%200 == 0 {
			s.send(0, 2000, 100, false)
		}
		if s.whole = calls%4 != 0; len(s.e[0].streams) < 40 && calls%15 == 0 {
			s.send(0, 1500, 200+10*(calls%40), true)
		}
		s.whole = false
	})
	s.knows(t, 0, 40, 1700)
	if held := s.p.members.All[0].learned.PerToken(); held < 1.15 || held > 1.4 {
		t.Errorf("learned: %.2f steps per token, want 1.25", held)
	}
}

// A prompt is computed before its own sequences decode, however many they are.
func TestASequenceDecodesNothingBesideItsOwnPrompt(t *testing.T) {
	s, truth := newStreams(1, estimate.DefaultSpeed()), estimate.DefaultSpeed()
	for i := range 60 {
		q := &Query{Model: "m", Tokens: 500 + 50*(i%20), MaxTokens: 10, Sequences: 128}
		s.now = s.now.Add(time.Second)
		s.observe()
		c, _, _ := s.p.Candidates(q, s.now, nil, nil)
		l := s.p.Book(&c[0], q, Schedule{AdmitAt: s.now, Local: true}, s.now)
		l.MarkSent(s.now)
		s.now = s.now.Add(seconds(truth.Prefill(q.Tokens, 0)))
		l.FirstToken(s.now)
		l.Finish(1280, 0, s.now)
	}
	is := s.p.learned.speed(s.p.members.All[0])
	if got, want := is.Prefill(1000, 0), truth.Prefill(1000, 0); math.Abs(got/want-1) > 0.1 {
		t.Errorf("1,000 tokens are predicted to take %.1f ms, want %.1f", got*1e3, want*1e3)
	}
}

// One more request costs the same on equal engines under any load: a replica with more load, and always
// about as much, must not attract still more.
func TestOneMoreCostsTheSameOnEnginesAlike(t *testing.T) {
	is := estimate.DefaultSpeed()
	is.D0 *= 3
	s, worst := newStreams(2, is), 1.0
	n, tokens := [2]int{60, 250}, [2]int{6000, 300}
	s.run(2*time.Minute, func() {
		for i, e := range s.e {
			if len(e.streams) < n[i] {
				s.send(i, tokens[i], 150, false)
			}
		}
		if s.now.Sub(start) < 30*time.Second {
			return
		}
		c, _, _ := s.p.Candidates(&Query{Model: "m", Tokens: 3000}, s.now, nil, nil)
		ratio := c[0].Marginal / c[1].Marginal
		worst = max(worst, ratio, 1/ratio)
	})
	if worst > 1.08 {
		t.Errorf("two equal replicas: one is predicted to slow down %.2f times as much", worst)
	}
}
