package claims

import "testing"

// A router that has seen no answer yet must not give away the room that requests under way will need. A
// request let in too early would wait inside an engine, for a minute, until another one ends.
func TestAColdRouterKeepsRoomForAnswers(t *testing.T) {
	s := pressure(limited)
	s.Cluster, s.Seed = "2P2D", 1
	s.Loops.Clients /= 2
	s.Loops.Calls = 1
	s.Loops.Stagger *= 2
	trial, err := newLab(Options{Workers: 1}).run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	runs := []*Trial{trial}
	if got := value(longestTTFT, runs); got > 10 {
		t.Errorf("one that was let in waited %.0f s for its first token, where 5 s are the limit", got)
	}
	if trial.Outcome.Preempted > 0 {
		t.Errorf("%d requests lost their blocks to others", trial.Outcome.Preempted)
	}
	served := 0
	for i := range trial.Answers {
		if !trial.Answers[i].Refused {
			served++
		}
	}
	if most := 2 * 43; served < most*3/4 { // as many fit with their answers
		t.Errorf("%d were served, and there is room for %d at once", served, most)
	}
}
