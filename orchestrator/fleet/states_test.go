package fleet

import (
	"testing"
	"time"
)

// Several states of a replica stand together, each with its cause, until it ends.
func TestStatesOfAReplicaStandTogether(t *testing.T) {
	start := time.Unix(1000, 0)
	var s states
	if !s.put("p1", "one", "because", start) || !s.put("p1", "two", "therefore", start.Add(1)) ||
		!s.put("p2", "one", "too", start) {
		t.Error("a state that begins is no change")
	}
	if s.put("p1", "one", "still", start.Add(2)) {
		t.Error("another cause of a state that holds is a change")
	}
	want := []State{{"one", "still", start}, {"two", "therefore", start.Add(1)}}
	if got := s.of("p1"); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("p1 has %v, want %v", got, want)
	}
	if s.put("p3", "one", "", start) || !s.put("p1", "one", "", start) || s.put("p1", "one", "", start) {
		t.Error("the end of a state must be a change, and only once")
	}
	if s.has("p1", "one") || !s.has("p1", "two") || !s.has("p2", "one") {
		t.Errorf("p1 has %v, p2 %v", s.of("p1"), s.of("p2"))
	}
}
