package page

import "testing"

func TestCondition(t *testing.T) {
	up := func(index string, states ...State) Replica { return Replica{Up: true, Index: index, States: states} }
	for _, c := range []struct {
		name string
		r    Replica
		want Condition
	}{
		{"well", up("live"), Condition{"in use", Well}},
		{"without an index", up(""), Condition{"in use", Well}},
		{"not probed yet", Replica{}, Condition{"not usable", Out}},
		{"ill", Replica{Reason: "connection refused", Index: "live"}, Condition{"connection refused", Out}},
		{
			"cuts prompts",
			Replica{Up: true, Index: "live", CutsPrompts: true},
			Condition{"in use, gets prompts whole: it cuts them itself", Well},
		},
		{
			"drained and stopped",
			Replica{Reason: "refused", States: []State{{State: "drained", Cause: "d"}}},
			Condition{"drained: refused", Out},
		},
		{
			"draining", up("live", State{State: "draining", Cause: "2 requests"}),
			Condition{"draining: 2 requests", Out},
		},
		{"syncing", up("syncing"), Condition{"index syncing", Notable}},
		{
			"ejected",
			up("stale", State{State: "half_open", Cause: "a"}, State{State: "ejected_decode", Cause: "b"}),
			Condition{"half open: a; ejected decode: b", Out},
		},
		{
			"to know",
			up("live", State{State: "index_truncated", Cause: "c"}),
			Condition{"index truncated: c", Notable},
		},
	} {
		l := Live{Replicas: []Replica{c.r}}
		if l.Judge(); l.Replicas[0].Condition != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, l.Replicas[0].Condition, c.want)
		}
	}
	many := Live{Replicas: []Replica{
		{Name: "a", Up: true},
		{Name: "b"},
		{Name: "c"},
		{Name: "d", Up: true, States: []State{{State: "drained"}}},
		{Name: "e"},
	}}
	if many.Judge(); many.Headline() != "1 of 5 usable: b, c, d and 1 more" {
		t.Errorf("the headline is %q", many.Headline())
	}
	limited := Live{Replicas: []Replica{
		{Name: "a", Pool: "decode", Up: true, States: []State{{State: "distrusted"}}},
		{Name: "b", Pool: "decode", Up: true, States: []State{{State: "unpaired"}}},
		{Name: "c", Pool: "decode", Up: true, States: []State{{State: "slow"}}},
		{Name: "d", Pool: "decode", Up: true, States: []State{{State: "pool_idle"}}},
	}}
	if limited.Judge(); limited.Headline() != "4 of 4 usable, 3 limited: a, b, c" {
		t.Errorf("the headline is %q", limited.Headline())
	}
	// A prefill replica that makes no pair gets no requests.
	limited.Replicas = append(limited.Replicas,
		Replica{Name: "p", Pool: "prefill", Up: true, States: []State{{State: "unpaired"}}})
	if limited.Judge(); limited.Headline() != "4 of 5 usable: p; 3 limited: a, b, c" {
		t.Errorf("the headline is %q", limited.Headline())
	}
	l := Live{Pairs: []Pair{
		{State: "in use", Cause: "was ejected"}, {State: "ejected", Cause: "no blocks came"},
	}}
	l.Judge()
	if got := l.Pairs[0].Condition; got != (Condition{"in use", Well}) {
		t.Errorf("a pair in use is %+v", got)
	}
	if got := l.Pairs[1].Condition; got != (Condition{"ejected: no blocks came", Out}) {
		t.Errorf("a pair that is out is %+v", got)
	}
}
