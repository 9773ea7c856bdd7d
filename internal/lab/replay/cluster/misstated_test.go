package cluster

import (
	"cmp"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseMisstated(t *testing.T) {
	for text, want := range map[string]Misstated{
		"":                               {},
		"links=0.1":                      {Links: 0.1},
		"speed=2":                        {Speed: 2},
		"speed=profile":                  {Speed: 1, Bare: true},
		"ids=none,index=none":            {Text: 1, Nothing: true},
		"routers=4":                      {Routers: 4},
		"links=10,routers=4@100ms":       {Links: 10, Routers: 4, Every: 100 * time.Millisecond},
		"speed=0.5,ids=none,routers=64":  {Speed: 0.5, Text: 1, Routers: 64},
		"length=0.5":                     {Text: 0.5},
		"index=none,speed=3,links=1e-06": {Nothing: true, Speed: 3, Links: 1e-6},
	} {
		if got, err := ParseMisstated(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"links", "links=0", "links=-1", "links=NaN", "links=Inf", "speed=fast", "ids=some", "index=", "routers=0",
		"length=long",
		"routers=65", "routers=4@", "routers=4@0s", "routers=4@-1s", "luck=2", "links=2,,speed=2",
	} {
		_, err := ParseMisstated(text)
		if err == nil {
			t.Errorf("%q is taken", text)
		} else if !strings.Contains(err.Error(), "misstate") {
			t.Errorf("%q: %v does not name the flag", text, err)
		}
	}
}

// A wrong engine speed that routers are given does not change the engine.
func TestToldSpeedsAreNotThoseOfEngines(t *testing.T) {
	c := config(1, 1)
	c.Nodes[0][0].Engine.Cost.Host = 0.01
	c.Misstated = Misstated{Speed: 2, Bare: true}
	told, engine := c.ToldNode(0, 0).Engine.Cost, c.Nodes[0][0].Engine.Cost
	if told.Host != 0 || told.Speed != 2*max(engine.Speed, 1) {
		t.Errorf("routers are given a host time of %v and a speed of %v", told.Host, told.Speed)
	}
	if engine.Host != 0.01 || engine.Speed == told.Speed {
		t.Errorf("the engine itself has a host time of %v and a speed of %v", engine.Host, engine.Speed)
	}
}

// A router without token ids sees an estimate of the prompt length and receives no block events. The
// engines still compute the real prompt.
func TestWithoutTokenIDsRoutersSeeEstimates(t *testing.T) {
	for name, m := range map[string]Misstated{
		"text": {Text: 1}, "short": {Text: 0.5}, "nothing": {Nothing: true},
		"truth": {},
	} {
		var tokens, keys []int
		s := &script{wants: [2]bool{true, true}}
		s.place = func(q *Query, _ time.Time) (p, d int, room bool) {
			tokens, keys = append(tokens, q.Tokens), append(keys, len(q.Keys))
			if parts := q.Chunk * 25; m.Text > 0 && math.Abs(parts-float64(q.Tokens)) > 1 {
				t.Errorf("%s: 25 chunks make %v tokens of %d", name, parts, q.Tokens)
			}
			return 0, 0, true
		}
		c := config(1, 1)
		c.Misstated = m
		line := `{"t":0,"in":1600,"out":2}` + "\n"
		res, err := play(t, c, s, header+strings.Repeat(line, 8), 1)
		records := must(t, res, err).Records
		off := false
		for i, n := range tokens {
			off = off || n != 1600
			if mean := cmp.Or(m.Text, 1); float64(n) < 1199*mean || float64(n) > 2001*mean {
				t.Errorf("%s: a prompt of 1600 tokens is estimated as %d", name, n)
			}
			if want := map[string]int{"text": 25, "short": 25, "nothing": 0, "truth": 100}[name]; keys[i] != want {
				t.Errorf("%s: %d keys, want %d", name, keys[i], want)
			}
		}
		if off != (m.Text > 0) || len(tokens) != 8 {
			t.Errorf("%s: %d requests, lengths %v", name, len(tokens), tokens)
		}
		if heard := len(s.heard) > 0; heard != (m == Misstated{}) {
			t.Errorf("%s: events received: %v", name, heard)
		}
		for _, r := range records {
			if r.Prompt != 1600 {
				t.Errorf("%s: the engines were sent %d tokens", name, r.Prompt)
			}
		}
	}
}
