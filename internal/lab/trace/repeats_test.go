package trace

import (
	"strings"
	"testing"
	"time"
)

// Which calls repeat, how certain that is, and which repeats a cache could have answered.
func TestRepeatsAreCounted(t *testing.T) {
	const head = `{"tandem_trace":1,"block_size":16}` + "\n"
	const first = `{"t":0,"m":"a","in":32,"out":5,"blocks":[1,2]}` + "\n"
	with := func(equal, sure, alike, hits int) Repeats {
		return Repeats{
			Calls: 2, Named: 2, Prompt: 64, Answer: 10, Equal: equal, Sure: sure, Alike: alike, Hits: hits,
			HitPrompt: 32 * hits, HitAnswer: 5 * hits,
		}
	}
	for name, tt := range map[string]struct {
		second string
		want   Repeats
	}{
		"the same":      {`{"t":60,"m":"a","in":32,"out":5,"blocks":[1,2]}`, with(1, 1, 1, 1)},
		"late":          {`{"t":61,"m":"a","in":32,"out":5,"blocks":[1,2]}`, with(1, 1, 1, 0)},
		"with tools":    {`{"t":1,"m":"a","in":32,"out":5,"blocks":[1,2],"tools":true}`, with(1, 1, 1, 0)},
		"other order":   {`{"t":1,"m":"a","in":32,"out":5,"blocks":[2,1]}`, with(0, 0, 0, 0)},
		"other model":   {`{"t":1,"m":"b","in":32,"out":5,"blocks":[1,2]}`, with(0, 0, 0, 0)},
		"other session": {`{"t":1,"m":"a","s":"s","in":32,"out":5,"blocks":[1,2]}`, with(1, 1, 1, 1)},
	} {
		if got := Repeating(read(t, head+first+tt.second+"\n", Options{}), time.Minute); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	several := head + strings.Repeat(`{"t":1,"in":33,"out":5,"blocks":[1,2]}`+"\n", 2) +
		// the last token is unknown, and the answer is a different one
		`{"t":2,"in":33,"out":7,"blocks":[1,2]}` + "\n" +
		`{"t":3,"in":33,"out":7,"blocks":[1,2]}` + "\n" + // hits the answer that is now kept
		strings.Repeat(`{"t":4,"in":15,"out":1}`+"\n", 2)
	want := Repeats{
		Calls: 6, Named: 4, Equal: 3, Alike: 2, Hits: 2, Prompt: 4*33 + 30, HitPrompt: 66, Answer: 26,
		HitAnswer: 12,
	}
	if got := Repeating(read(t, several, Options{}), time.Minute); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// In sessions without times, no answer is too old.
func TestRepeatsWithoutTimes(t *testing.T) {
	line := func(session string) string {
		return `{"g":"g","s":"` + session + `","t":1,"in":16,"out":5,"hash_ids":[1]}` + "\n"
	}
	r := Repeating(read(t, line("a")+line("b"), Options{Format: LMCache}), 0)
	if r.Hits != 1 || r.Sure != 1 {
		t.Errorf("%+v, want one certain hit", r)
	}
}
