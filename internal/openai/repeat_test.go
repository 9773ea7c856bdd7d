package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func canonical(t interface{ Fatalf(string, ...any) }, kind Kind, body string) (string, string) {
	r, err := Parse(kind, []byte(body), Limits{})
	if err != nil {
		t.Fatalf("%s: got %v, want no error", body, err)
	}
	c, why := r.Repeatable(Repeat{})
	return string(c), why
}

// Requests that differ only in notation have the same canonical form.
func TestSameMeaningIsTheSameQuestion(t *testing.T) {
	const first = `{"model":"m","temperature":0,"top_p":1,"messages":[{"role":"user","content":` +
		`[{"type":"text","text":"né \" /"}]}],"logit_bias":{"1":2,"3":4},"max_tokens":5}`
	want, why := canonical(t, Chat, first)
	if why != "" {
		t.Fatalf("got %q, want a repeatable request", why)
	}
	for name, body := range map[string]string{
		"other order": `{"max_tokens":5,"logit_bias":{"3":4,"1":2},"messages":[{"content":` +
			`[{"text":"né \" /","type":"text"}],"role":"user"}],"top_p":1,"temperature":0,"model":"m"}`,
		"white space": strings.NewReplacer(`,"`, " ,\n\t\"", `:[`, ": [ ").Replace(first),
		"escapes": strings.NewReplacer(
			"né", `n\u00e9`, " /", ` \/`, `"model"`, `"mod\u0065l"`,
		).Replace(first),
		"numbers": strings.NewReplacer(
			`"temperature":0`, `"temperature":-0.0`, `"top_p":1`, `"top_p":1.0`,
		).Replace(first),
		"user": strings.Replace(first, `{`, `{"user":"u","metadata":{"a":"b"},"priority":3,"session_id":"s",`+
			`"store":true,"safety_identifier":"s","prompt_cache_key":"k",`, 1),
		"repeated member": strings.Replace(first, `{`, `{"max_tokens":9,"temperature":1,`, 1),
	} {
		got, why := canonical(t, Chat, body)
		if got != want || why != "" {
			t.Errorf("%s: got %s\nwant %s (%s)", name, got, want, why)
		}
	}
}

// Every difference that may change the answer changes the canonical form. This includes the order within a
// schema or within arguments.
func TestOtherMeaningIsAnotherQuestion(t *testing.T) {
	seen := map[string]string{}
	const same = `"messages":[{"role":"user","content":"a"}]`
	for _, rest := range []string{
		same,
		`"messages":[{"role":"user","content":"b"}]`,
		`"messages":[{"role":"user","content":"a "}]`,
		`"messages":[{"role":"system","content":"a"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"user","content":"a"}]`,
		`"messages":[{"role":"user","content":["a"]}]`,
		same + `,"model":"m"`,
		same + `,"stream":true`,
		same + `,"max_tokens":1`,
		same + `,"max_tokens":2`,
		same + `,"max_completion_tokens":2`,
		same + `,"stop":"x"`,
		same + `,"stop":["x"]`,
		same + `,"logit_bias":{"1":20,"01":-20}`, // vLLM reads both as one token, and uses the last value
		same + `,"logit_bias":{"01":-20,"1":20}`,
		same + `,"seed":9007199254740992`,
		same + `,"seed":9007199254740993`,
		same + `,"cache_salt":"s"`,
		same + `,"cache_salt":"t"`,
		same + `,"logprobs":true,"top_logprobs":2`,
		same + `,"chat_template_kwargs":{"a":1,"b":2}`,
		same + `,"chat_template_kwargs":{"b":2,"a":1}`,
		same + `,"chat_template_kwargs":{"a":1.0,"b":2}`,
		same + `,"chat_template_kwargs":{"content":{"x":1,"y":2}}`,
		same + `,"chat_template_kwargs":{"content":{"y":2,"x":1}}`,
		same + `,"response_format":{"type":"json_schema","json_schema":{"a":1,"b":2}}`,
		same + `,"response_format":{"type":"json_schema","json_schema":{"b":2,"a":1}}`,
		same + `,"min_p":0.1`,
		same + `,"ignore_eos":true`,
		same + `,"request_id":"r"`,
	} {
		body := `{"temperature":0,` + rest + `}`
		got, why := canonical(t, Chat, body)
		if why != "" {
			t.Errorf("%s: got %q, want a repeatable request", body, why)
		}
		if seen[got] != "" {
			t.Errorf("got one canonical form for two requests, want two:\n%s\n%s", seen[got], body)
		}
		seen[got] = body
	}
}

func TestWhatIsNotRepeatable(t *testing.T) {
	const chat = `"messages":[{"role":"user","content":"a"}]`
	for body, want := range map[string]string{
		`{` + chat + `}`:                                                       NotSame,
		`{"temperature":null,` + chat + `}`:                                    NotSame,
		`{"temperature":0.1,` + chat + `}`:                                     NotSame,
		`{"temperature":0,"temperature":1,` + chat + `}`:                       NotSame,
		`{"temperature":1,"seed":4,` + chat + `}`:                              NotSame,
		`{"temperature":0,"n":2,` + chat + `}`:                                 SeveralAsked,
		`{"temperature":0,"tools":[{"type":"function"}],` + chat + `}`:         ToolsAsked,
		`{"temperature":0,"tool_choice":"auto",` + chat + `}`:                  UnknownMember,
		`{"temperature":0,"of_tomorrow":1,` + chat + `}`:                       UnknownMember,
		`{"temperature":0,"vllm_xargs":{"a":1},` + chat + `}`:                  UnknownMember,
		`{"temperature":0,"use_beam_search":true,` + chat + `}`:                UnknownMember,
		`{"temperature":0,"messages":[{"role":"user","content":"\ud800"}]}`:    UnknownMember,
		`{"temperature":0,"messages":[{"content":[{"type":"image_url"}]}]}`:    MediaAsked,
		`{"temperature":0,"of_tomorrow":null,"tools":[],"n":1,` + chat + `}`:   "",
		`{"temperature":"0","tool_choice":"none","functions":[],` + chat + `}`: "",
	} {
		if _, why := canonical(t, Chat, body); why != want {
			t.Errorf("%s: got %q, want %q", body, why, want)
		}
	}
	if _, why := canonical(t, Completions, `{"temperature":0,"prompt":["a","b"]}`); why != SeveralAsked {
		t.Errorf("two prompts: got %q, want %q", why, SeveralAsked)
	}
	r, err := Parse(Chat, []byte(`{"temperature":1,"seed":4,`+chat+`}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, why := r.Repeatable(Repeat{Seeded: true}); why != "" {
		t.Errorf("seeded: got %q, want a repeatable request", why)
	}
}

// The time for very many members, or repeated members, is no more than the time to read them.
func TestManyMembersAreSortedInTime(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"temperature":0,"messages":[{"role":"user","content":"a"}],"logit_bias":{"0":0`)
	const n = 200_000
	for i := range n {
		b.WriteString(`,"` + strconv.Itoa(i/2) + `":` + strconv.Itoa(i))
	}
	body := b.String() + "}}"
	got, why := canonical(t, Chat, body)
	members, last := strings.Count(got, ","), strings.Contains(got, `"99999":199999}`)
	if why != "" || members > n/2+5 || !last {
		t.Errorf("got %d commas, %q; want each member once, with the last value", members, why)
	}
}

// Token ids have the same form with any spaces, and never the form of a text.
func TestQuestionsOfTokenIDs(t *testing.T) {
	a, _ := canonical(t, Completions, `{"temperature":0,"prompt":[1,2,30]}`)
	b, _ := canonical(t, Completions, `{"prompt":[ 1 ,2, 30 ],"temperature":0}`)
	c, _ := canonical(t, Completions, `{"prompt":[1,23,0],"temperature":0}`)
	d, _ := canonical(t, Completions, `{"prompt":"[1,2,30]","temperature":0}`)
	if a != b || a == c || a == d {
		t.Errorf("got forms\n%s\n%s\n%s\n%s\nwant only the first two equal", a, b, c, d)
	}
}

// For any values, the order of members does not matter, and another value gives another canonical form.
func TestQuestionsByChance(t *testing.T) {
	values := map[string][]string{
		"model": {`"a"`, `"b"`}, "max_tokens": {"1", "2", "null"}, "top_k": {"-1", "4"}, "top_p": {"0.5", "1"},
		"stop": {`"x"`, `["x","y"]`, `[]`}, "stream": {"true", "false"}, "seed": {"1", "2"},
		"messages":             {`[{"role":"user","content":"q"}]`, `[{"role":"user","content":"Q"}]`},
		"chat_template_kwargs": {`{"a":1}`, `{"a":2}`, `{}`}, "ignore_eos": {"true", "false"},
	}
	names := slices.Sorted(maps.Keys(values))
	rapid.Check(t, func(t *rapid.T) {
		picked := map[string]string{"temperature": "0"}
		for _, name := range names {
			if name == "messages" || rapid.Bool().Draw(t, "has "+name) {
				picked[name] = rapid.SampledFrom(values[name]).Draw(t, name)
			}
		}
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "dice"), 1))
		write := func() string {
			order := slices.Sorted(maps.Keys(picked))
			dice.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			var b strings.Builder
			for i, name := range order {
				b.WriteString(map[bool]string{true: "{", false: ", "}[i == 0] + `"` + name + `" : ` + picked[name])
			}
			return b.String() + "}"
		}
		one, why := canonical(t, Chat, write())
		two, _ := canonical(t, Chat, write())
		if one != two || why != "" {
			t.Fatalf("got %s (%s)\nand %s, want one form", one, why, two)
		}
		name := rapid.SampledFrom(names).Draw(t, "other")
		other := rapid.SampledFrom(values[name]).Filter(
			func(v string) bool { return v != picked[name] },
		).Draw(t, "value")
		picked[name] = other
		if three, _ := canonical(t, Chat, write()); three == one {
			t.Fatalf("%s: got the same canonical form for %s, want another", name, other)
		}
	})
}

// The canonical form is JSON with the meaning of the request, and is its own canonical form.
func FuzzRepeatable(f *testing.F) {
	for _, seed := range []string{
		`{"temperature":0,"messages":[{"role":"user","content":"a\u0041\n"}],"logit_bias":{"2":1,"1":-0}}`,
		`{"temperature":0,"messages":[{"content":[{"type":"text","text":"\ud83d\ude00"}]}],"top_p":1e0}`,
		`{"temperature":0,"messages":[{}],"chat_template_kwargs":{"z":1,"a":[{"b":{"c":null}}],"a":2}}`,
		`{"temp\u0065rature":0,"messages":[{"content":{"b":1,"a":2}}],"stop":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(Chat, body, Limits{})
		if err != nil {
			return
		}
		one, why := r.Repeatable(Repeat{})
		if why != "" {
			return
		}
		again, err := Parse(Chat, one, Limits{})
		if err != nil {
			t.Fatalf("%s: got %v, want no error", one, err)
		}
		two, why := again.Repeatable(Repeat{})
		if !bytes.Equal(one, two) || why != "" {
			t.Fatalf("got %s from the canonical form (%s)\nwant no change of %s", two, why, one)
		}
		if got, want := decoded(t, one), decoded(t, r.Raw); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v\nwant %v\n%s", got, want, one)
		}
	})
}

// decoded returns the members of a request, without the members that name the user.
func decoded(t *testing.T, body []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: got %v, want JSON", body, err)
	}
	for _, name := range whoAsks {
		delete(m, name)
	}
	for _, name := range reals {
		if n, ok := m[name].(json.Number); ok {
			if f, err := n.Float64(); err == nil {
				m[name] = f + 0
			}
		}
	}
	return m
}

func TestFinishedAnswers(t *testing.T) {
	for answer, want := range map[string]bool{
		`{"choices":[{"finish_reason":"stop"}]}`:                                      true,
		`{"choices":[{"finish_reason": "length"}]}`:                                   true,
		`{"choices":[{"finish_reason":"abort"}]}`:                                     false,
		`{"choices":[{"finish_reason":"tool_calls"}]}`:                                false,
		`{"choices":[{"finish_reason":null}]}`:                                        false,
		`{"choices":[]}`:                                                              false,
		`{"choices":[{"text":"\"finish_reason\":\"abort\"","finish_reason":"stop"}]}`: true,
		"data: {\"finish_reason\":null}\n\ndata: {\"finish_reason\":\"stop\"}\n\n":    true,
		"data: {\"finish_reason\":\"stop\"}\n\ndata: {\"finish_reason\":\"error\"}":   false,
	} {
		if got := (&Request{Kind: Chat}).Finished([]byte(answer)); got != want {
			t.Errorf("%s: got %v, want %v", answer, got, want)
		}
	}
}
