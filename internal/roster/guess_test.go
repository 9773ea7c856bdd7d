package roster

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// What one router has sent counts at another, over the wire, for as long as it should take.
func TestGuessesOfAnotherRouter(t *testing.T) {
	one, other := newRoster("a", "b"), newRoster("x", "b")
	keys := one.keys(count(100))
	now := time.Now()
	_, from := one.Guesses(0)
	one.Speculate(&one.members.All[0].Member, Prompt{Keys: keys}, time.Second, now)
	one.Speculate(&one.members.All[1].Member, Prompt{Keys: keys}, time.Second, now)
	gs, next := one.Guesses(from)
	wire, err := json.Marshal(gs)
	if err != nil {
		t.Fatal(err)
	}
	var heard []Guess
	if err := json.Unmarshal(wire, &heard); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 || !slices.Equal(heard[1].Keys, gs[1].Keys) || !heard[1].Plausible() {
		t.Fatalf("%d bytes say %+v", len(wire), heard)
	}
	other.MergeGuesses(heard, now)
	if got := other.depths(keys); got[0] != 0 || got[1] != 6 {
		t.Errorf("depths %v, want 0 and 6", got)
	}
	if gs, _ := other.Guesses(0); len(gs) != 0 {
		t.Errorf("%d guesses of another are told on", len(gs))
	}
	other.Expire(now.Add(2*time.Second + guessTime))
	if got := other.depths(keys); got[1] != 0 {
		t.Errorf("depths %v when it should long be there", got)
	}
	if again, _ := one.Guesses(next); len(again) != 0 {
		t.Errorf("%d guesses are told twice", len(again))
	}
}

// A router that asks rarely misses guesses. A router that asks a new process gets no guess by an old number.
func TestGuessesAreKeptForAWhile(t *testing.T) {
	r := newRoster("a")
	if gs, next := r.Guesses(0); len(gs) != 0 || next != 0 { // from now on they are kept
		t.Fatalf("%d guesses before any", len(gs))
	}
	for range keptGuesses + 7 {
		r.Speculate(&r.members.All[0].Member, Prompt{Keys: r.keys(count(100))}, 0, time.Now())
	}
	for from, want := range map[uint64]int{
		0: keptGuesses, 7: keptGuesses, keptGuesses: 7, keptGuesses + 7: 0, 1 << 60: 0,
	} {
		if gs, next := r.Guesses(from); len(gs) != want || next != keptGuesses+7 {
			t.Errorf("%d guesses from %d on, want %d; the next is %d", len(gs), from, want, next)
		}
	}
}

func TestImplausibleGuesses(t *testing.T) {
	for _, text := range []string{
		`{"keys":"AAAAAAAAAAA="}`, `{"id":"a","keys":""}`, `{"id":"a","keys":"AAAAAAAAAAA=","within_ns":-1}`,
		`{"id":"a","keys":"AAAAAAAAAAA=","within_ns":999000000000}`, `{"id":"a","keys":"AAAA"}`,
		`{"id":"a","keys":[1]}`,
	} {
		var g Guess
		if err := json.Unmarshal([]byte(text), &g); err == nil && g.Plausible() {
			t.Errorf("%s is plausible", text)
		}
	}
}
