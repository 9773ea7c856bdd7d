package estimate

import (
	"testing"
	"time"
)

// The time to read a token back is learned from whole prompts, by replica and memory.
func TestReadBacks(t *testing.T) {
	const (
		computes = 1e-5
		tokens   = 16_000
		rest     = 0.02
	)
	now := time.Unix(1000, 0)
	var pool, slow, other ReadBacks
	if got := slow.Seconds(&pool, 0, computes, now); got < computes/11 || got > computes/9 {
		t.Errorf("%v before any sample", got)
	}
	for range 4 { // 1.6 s for the reading
		slow.Learn(&pool, 0, computes, ReadBackTook(1.6+rest, rest, tokens, now))
	}
	for _, tt := range []struct {
		name string
		got  float64
		want float64
	}{
		{"the replica", slow.Seconds(&pool, 0, computes, now), 1e-4},
		{"another one believes the pool", other.Seconds(&pool, 0, computes, now), 1e-4},
		{"another memory", slow.Seconds(&pool, 2, computes, now), computes * readPart},
	} {
		if tt.got < tt.want/1.2 || tt.got > tt.want*1.2 {
			t.Errorf("%s: %v seconds a token, want about %v", tt.name, tt.got, tt.want)
		}
	}
	other.Learn(&pool, 0, computes, ReadBackTook(0.01+rest, rest, tokens, now))
	if got := other.Seconds(&pool, 0, computes, now); got > 1e-5 {
		t.Errorf("%v seconds a token on the fast replica", got)
	}
	later := now.Add(readBelieved)
	if got := slow.Seconds(&pool, 0, computes, later); got >= slow.Seconds(&pool, 0, computes, now) {
		t.Errorf("%v seconds a token after a long time without a sample", got)
	}
}

// A prompt that took about as long as predicted says only that the reading was no longer than that.
func TestReadBackTakenForTheRest(t *testing.T) {
	s := ReadBackTook(1.0, 0.8, 1000, time.Unix(1000, 0))
	if s.Low != 0 || s.High < 0.4e-3 || s.High > 0.6e-3 {
		t.Errorf("%+v", s.Range)
	}
}
