package cluster

import (
	"testing"
	"time"
)

// A stream stands still while its replica computes the prompt of a new request, one step at a time at 1 ms
// a token. Without a prefill on the same replica, tokens come every 10 ms.
func TestTheLongestGap(t *testing.T) {
	text := header + `{"t":0,"in":16,"out":100}` + "\n" + `{"t":0.2,"in":500,"out":1}`
	for step, want := range map[int]time.Duration{
		0: 501 * time.Millisecond, 101: 101 * time.Millisecond, // includes the stream's own token
	} {
		c := config(1, 1)
		c.Nodes[Decode][0].Engine.MaxBatchedTokens = step
		res, err := play(t, c, &script{place: local}, text, 1)
		got := map[int]time.Duration{}
		for _, r := range must(t, res, err).Records {
			got[r.Prompt] = r.Gap
		}
		if got[16] != want || got[500] != 0 {
			t.Errorf("step of %d: gaps %v, want %v and none", step, got, want)
		}
	}
	res, err := play(t, config(1, 1), &script{}, text, 1)
	for _, r := range must(t, res, err).Records {
		if r.Prompt == 16 && r.Gap != 10*time.Millisecond {
			t.Errorf("prefilled elsewhere: a gap of %v", r.Gap)
		}
	}
}

func TestStepOfADescription(t *testing.T) {
	d, err := Shape("1P2D")
	if err != nil {
		t.Fatal(err)
	}
	d.Prefill[0].Step = 4096
	c, err := d.Config(Base{Profile: "8b", Cache: 1, Link: 1, MaxLen: 100, Step: 1024})
	if err != nil {
		t.Fatal(err)
	}
	p, e := c.Nodes[Prefill][0].Engine.MaxBatchedTokens, c.Nodes[Decode][1].Engine.MaxBatchedTokens
	if p != 4096 || e != 1024 {
		t.Errorf("steps of %d and %d tokens", p, e)
	}
	d.Decode[0].Step = -1
	if _, err := d.Config(Base{Profile: "8b", Cache: 1, Link: 1, MaxLen: 100}); err == nil {
		t.Error("a negative step was accepted")
	}
}
