package decode

import (
	"testing"
	"time"
)

// A local prompt delays requests whose blocks arrive meanwhile, because its steps admit no other request. A
// request that has arrived is not delayed.
func TestAPromptDelaysThoseWhoseBlocksCome(t *testing.T) {
	p := pool(0)
	split := func(sentIn time.Duration) *Lease {
		q := &Query{Model: "m", Tokens: 160, MaxTokens: 16}
		c, _, _ := p.Candidates(q, start, nil, nil)
		return p.Book(&c[0], q, Schedule{AdmitAt: start, SendAt: start.Add(sentIn), LandAt: start.Add(2 * sentIn)},
			start)
	}
	question := &Query{Model: "m", Tokens: 2048, MaxTokens: 16}
	c, _, _ := p.Candidates(question, start, nil, nil)
	warm := seconds(c[0].Local.Warm)
	there := split(0)
	soon := split(warm / 4)
	// A local prompt also waits for half of the running step.
	late := split(2*warm + seconds(c[0].Step))
	for _, step := range []struct {
		name string
		does func()
		want time.Duration
	}{
		{"two come before it is through", func() {}, warm + warm*3/4},
		{"one has its first token", func() { there.MarkSent(start); there.FirstToken(start) }, warm * 3 / 4},
		{"the other has been sent, and lands twice as late", func() { soon.MarkSent(start) }, warm / 2},
		{
			"it would wait for another prompt, when the one has landed and before the next is sent",
			func() { local(t, p, 128, Schedule{}, start) }, 0,
		},
		{"the one ends", func() { soon.Release(start) }, 0},
		{"and a third", func() { local(t, p, 128, Schedule{}, start) }, warm},
		{"all end", func() { late.Release(start) }, 0},
	} {
		step.does()
		c, _, _ := p.Candidates(question, start, nil, nil)
		if got := seconds(c[0].Local.Delayed); (got - step.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v of delay, want %v", step.name, got, step.want)
		}
	}
}

// A transfer waits for transfers that leave other replicas before it is ready, if they have not arrived by
// then. Transfers that leave later do not delay it, however many are booked.
func TestBlocksWaitForThoseBefore(t *testing.T) {
	p := pool(0)
	q := &Query{Model: "m", Tokens: 1600, MaxTokens: 160}
	for i := range 10 { // one leaves each second, and takes 0.5 s
		c, _, _ := p.Candidates(q, start, nil, nil)
		leaves := start.Add(time.Duration(i+1) * time.Second)
		p.Book(&c[0], q, Schedule{AdmitAt: start, SendAt: leaves, Transfer: 500 * time.Millisecond}, start)
	}
	waits := func(ready time.Duration) float64 {
		c, _, _ := p.Candidates(&Query{Model: "m", Tokens: 160, MaxTokens: 160, Ready: ready}, start, nil, nil)
		return c[0].Inbound
	}
	for ready, want := range map[time.Duration]float64{
		0: 0, 900 * time.Millisecond: 0, 5500 * time.Millisecond: 0, time.Minute: 0,
	} {
		if got := waits(ready); got != want {
			t.Errorf("ready in %v: waits for %g s, want %g", ready, got, want)
		}
	}
	for range 3 { // and three that leave soon
		c, _, _ := p.Candidates(q, start, nil, nil)
		p.Book(&c[0], q, Schedule{
			AdmitAt: start, SendAt: start.Add(100 * time.Millisecond), Transfer: 2 * time.Second,
		}, start)
	}
	if got := waits(500 * time.Millisecond); got != 5.5 {
		t.Errorf("behind three that take 6 s: waits for %g s, want 5.5", got)
	}
}
