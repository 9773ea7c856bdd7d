package claims

import "testing"

// A router that has seen no answer yet must not give away the room that running requests will need.
// Otherwise a request that was admitted too early waits inside an engine, up to a minute, until another
// request ends.
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
		t.Errorf("an admitted request waited %.0f s for its first token, the limit is 5 s", got)
	}
	if trial.Outcome.Preempted > 0 {
		t.Errorf("%d requests were preempted", trial.Outcome.Preempted)
	}
	served := 0
	for i := range trial.Answers {
		if !trial.Answers[i].Refused {
			served++
		}
	}
	if most := 2 * 43; served < most*3/4 { // the number that fits with its answers
		t.Errorf("%d requests were served, there is room for %d at once", served, most)
	}
}
