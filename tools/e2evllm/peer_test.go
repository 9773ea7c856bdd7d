package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
)

// A kind of request that killed engines is not sent any more. After a failed answer the tally waits for
// the engines. Everything is counted.
func TestTally(t *testing.T) {
	outcome := func(o string, leaked bool) func(context.Context) verdictOf {
		return func(context.Context) verdictOf { return verdictOf{outcome: o, leaked: leaked, patience: true} }
	}
	var trials []trial
	for range 3 {
		trials = append(trials, trial{kind: "good", play: outcome(rightText, true)},
			trial{kind: "deadly", play: outcome(serverSide, false)},
			trial{kind: "wrong", play: outcome(notRight, true)})
	}
	patient, anew := 0, 0
	lost := func(_ context.Context, patience bool) []string {
		if !patience {
			return nil
		}
		if patient++; patient == 1 || patient == 3 { // the calls alternate between deadly and wrong requests
			return []string{"d0"}
		}
		return nil
	}
	got := &tally{name: "front"}
	if err := got.run(t.Context(), trials, lost, func() error { anew++; return nil }); err != nil {
		t.Fatal(err)
	}
	if got.sent != 8 || got.lost != 2 || anew != 2 || patient != 5 || got.leaked != 6 ||
		got.counts[notRight] != 3 || got.bad["wrong"] != 3 || got.unsent["deadly"] != 1 {
		t.Errorf("tally = %+v, anew %d, patient %d", got, anew, patient)
	}
	var table strings.Builder
	printTallies(&table, "answers", []*tally{got})
	for _, want := range []string{
		"requests sent                                   8", "lost engines: deadly 2", "not sent: deadly 1",
		"not right: deadly 2, wrong 3",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	patient = 0
	if err := got.run(t.Context(), trials, lost, func() error { return errors.New("no engine") }); err == nil {
		t.Error("engines that did not come back gave no error")
	}
}

const peerBody = `{"id":"cmpl-___prefill_addr_127.0.0.1:21400___decode_addr_127.0.0.1:21402_025f",` +
	`"choices":[{"index":0,"text":" a","finish_reason":"length"}],` +
	`"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`

// Leaked addresses are noticed, and the comparison of the text still works.
func TestPeersAnswer(t *testing.T) {
	address := regexp.MustCompile(`127\.0\.0\.1|21400`)
	leak := func(h heard, _ []byte) string { return string(address.Find(h.all)) }
	q := request{kind: "text", path: completions, body: map[string]any{}}
	want := answer{status: 200, choices: []choice{{text: " a", finish: "length"}}, usage: usage{5, 1, 6}}
	h := heard{status: 200, body: []byte(peerBody), all: []byte(peerBody)}
	if leak(h, nil) == "" || leak(masked(h, nil, leak), nil) != "" {
		t.Error("addresses in the id were not noticed or not removed")
	}
	if got, why := judgeAnswer(q, masked(h, nil, leak), want); got != rightText {
		t.Errorf("%s: %s", got, why)
	}
	other := want
	other.choices = []choice{{text: " b", finish: "length"}}
	for name, c := range map[string]struct {
		h    heard
		want answer
		is   string
	}{
		"another text": {h, other, notRight},
		"500":          {heard{status: 500}, want, serverSide},
		"refused":      {heard{status: 422}, want, refusal},
		"not refused":  {h, answer{status: 400}, notRight},
		"cut":          {heard{status: 200, body: []byte(peerBody[:90])}, want, notRight},
		"nothing":      {heard{err: errors.New("reset")}, want, noAnswer},
	} {
		if got, _ := judgeAnswer(q, masked(c.h, nil, leak), c.want); got != c.is {
			t.Errorf("%s is %q, want %q", name, got, c.is)
		}
	}
}

// A limited number of cases is a mixture of all groups, and is the same each time.
func TestSome(t *testing.T) {
	cases := jsonCases()
	for _, limit := range []int{40, len(cases), 2 * len(cases)} {
		few, again := some(cases, limit), some(cases, limit)
		if len(few) != min(limit, len(cases)) || few[0].name != again[0].name ||
			few[len(few)-1].name != again[len(few)-1].name {
			t.Errorf("at most %d: got %d cases, or a different choice the second time", limit, len(few))
		}
		groups := map[string]bool{}
		for _, c := range few {
			groups[c.group] = true
		}
		if len(groups) < 2 {
			t.Errorf("at most %d: only %v", limit, groups)
		}
	}
}
