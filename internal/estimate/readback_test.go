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

// The next process begins with the saved times. An old time is near the guess, and an impossible one is
// ignored.
func TestReadBacksAreKept(t *testing.T) {
	now := time.Unix(1000, 0)
	var pool Pool
	var before Prompts
	guess := pool.computes(&before) * readPart
	for range 4 {
		pool.HasRead(&before, &ReadBack{Tokens: [media]int32{0, 0, 16_000}, Rest: 0.01}, 1.6, now)
	}
	saved, known := before.State()
	was := before.Measured()[2]
	if !known || len(saved.Reads) != 1 || was < 0.8e-4 || was > 1.2e-4 {
		t.Fatalf("saved is %+v, measured %v", saved, was)
	}
	for name, tt := range map[string]struct {
		age    time.Duration
		change func(*ReadState)
		want   float64 // seconds to read a token
	}{
		"soon":         {age: time.Second, want: was},
		"after a week": {age: 7 * 24 * time.Hour, want: guess},
		"negative":     {change: func(s *ReadState) { s.PerToken = -1 }, want: guess},
		"too slow":     {change: func(s *ReadState) { s.PerToken = 10 }, want: guess},
		"no memory":    {change: func(s *ReadState) { s.Memory = media }, want: guess},
	} {
		t.Run(name, func(t *testing.T) {
			var pool Pool
			var after, other Prompts
			s := saved.Reads[0]
			if tt.change != nil {
				tt.change(&s)
			}
			pool.RestorePrompts(&after, &Speeds{Reads: []ReadState{s}}, now.Add(tt.age))
			for _, r := range []*Prompts{&after, &other} {
				got := pool.Reading(r, [media]int32{0, 0, 1}, now.Add(tt.age))
				if got < tt.want*0.9 || got > tt.want*1.1 {
					t.Errorf("%.3g s to read a token, want %.3g", got, tt.want)
				}
			}
			if pool.RestorePrompts(&before, &Speeds{Reads: []ReadState{s}}, now) {
				t.Error("a saved time took the place of a measured one")
			}
		})
	}
}
