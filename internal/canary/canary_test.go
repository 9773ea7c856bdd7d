package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func question(e Engine) *Question { return New(e, rand.New(rand.NewPCG(1, 2))) }

// A prompt has several full blocks and a tail. It is long enough that an engine fetches its blocks instead of
// computing them, and it fits the engine with its answer.
func TestPromptFits(t *testing.T) {
	for _, c := range []struct {
		e    Engine
		want int
	}{
		{Engine{}, 4*128 + 5},
		{Engine{BlockSize: 16}, 10*16 + 5},
		{Engine{BlockSize: 32}, 5*32 + 5},
		{Engine{BlockSize: 64}, 4*64 + 5},
		{Engine{BlockSize: 512}, 2*512 + 5},
		{Engine{BlockSize: 2096}, 2096 + 5},
		{Engine{BlockSize: 128, MaxModelLen: 100}, 100 - 8 - 1},
		{Engine{BlockSize: 128, MaxModelLen: 4}, 1},
	} {
		q := question(c.e)
		if len(q.IDs) != c.want {
			t.Errorf("%+v: %d tokens, want %d", c.e, len(q.IDs), c.want)
		}
		for i, id := range q.IDs {
			if id < 10 || id >= 100 || i >= cycle && id != q.IDs[i-cycle] {
				t.Fatalf("%+v: token %d is %d", c.e, i, id)
			}
		}
	}
}

// Two questions share neither prompt nor salt. All bodies of one question have the same token ids. The
// request for the decode engine's own answer has another salt.
func TestBodies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := New(Engine{Model: `m"x`}, r), New(Engine{Model: `m"x`}, r)
	if slices.Equal(a.IDs[:cycle], b.IDs[:cycle]) || a.Salt == b.Salt {
		t.Errorf("two questions are alike: %v %v", a, b)
	}
	salts := map[string]bool{}
	for i, raw := range [][]byte{a.Prefill(), a.Decode(), a.Own(), a.Likely()} {
		var body struct {
			Model  string
			Prompt []uint32
			Max    int    `json:"max_tokens"`
			Salt   string `json:"cache_salt"`
			Likely int    `json:"logprobs"`
			Stream bool
		}
		if err := json.Unmarshal(raw, &body); err != nil || body.Model != `m"x` ||
			!slices.Equal(body.Prompt, a.IDs) || body.Stream {
			t.Errorf("%v in %s", err, raw)
		}
		if want := []int{1, AnswerTokens, AnswerTokens, AnswerTokens}[i]; body.Max != want {
			t.Errorf("body %d asks for %d tokens, want %d", i, body.Max, want)
		}
		if body.Likely > 0 != (i == 3) {
			t.Errorf("body %d asks for %d log-probabilities, for which an engine stands still", i, body.Likely)
		}
		salts[body.Salt] = true
	}
	if len(salts) != 2 || !salts[a.Salt] {
		t.Errorf("salts %v of %s", salts, a.Salt)
	}
}

func TestParams(t *testing.T) {
	for answer, want := range map[string]string{
		`{"kv_transfer_params":{"a":1, "b":[[2]],` +
			`"remote_prefill_cached_tokens":0,"c":null}}`: `{"a":1,"b":[[2]],"c":null}`,
		`{"kv_transfer_params":{"remote_prefill_cach\u0065d_tokens":7}}`: `{}`,
		`{"kv_transfer_params":null}`:                                    "", `{"x":1}`: "", `{`: "",
		`{"kv_transfer_params":[1]}`: "",
	} {
		if got := string(Params([]byte(answer))); got != want {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
}

// reply is an answer with these numbers of prompt and cached tokens. Each word of the text is a token.
func reply(prompt, cached int, words, more string) Answer {
	ids := []string{}
	for word := range strings.FieldsSeq(words) {
		ids = append(ids, strconv.Itoa(idOf(word)))
	}
	details := "null"
	if cached >= 0 {
		details = fmt.Sprintf(`{"cached_tokens":%d}`, cached)
	}
	return Answer{Status: 200, Body: fmt.Appendf(nil,
		`{"choices":[{"text":%q,"token_ids":[%s]}],"usage":{"prompt_tokens":%d,"prompt_tokens_details":%s}%s}`,
		words, strings.Join(ids, ","), prompt, details, more)}
}

func idOf(word string) int {
	id := 0
	for _, c := range word {
		id = id*256 + int(c)
	}
	return id
}

// likely is an answer with alternatives: a word in parentheses is nearly as likely as the word before it.
func likely(prompt int, words string) Answer {
	var tokens, top []string
	name := func(word string) string { return fmt.Sprintf(`"token_id:%d"`, idOf(word)) }
	for word := range strings.FieldsSeq(words) {
		token, other, tie := strings.Cut(strings.TrimSuffix(word, ")"), "(")
		tokens = append(tokens, name(token))
		if tie {
			top = append(top, fmt.Sprintf(`{%s:-0.7,%s:-0.9}`, name(token), name(other)))
		} else {
			top = append(top, fmt.Sprintf(`{%s:-0.1,%s:-4}`, name(token), name("far")))
		}
	}
	return Answer{Status: 200, Body: fmt.Appendf(nil,
		`{"choices":[{"text":"","logprobs":{"tokens":[%s],"top_logprobs":[%s]}}],"usage":{"prompt_tokens":%d}}`,
		strings.Join(tokens, ","), strings.Join(top, ","), prompt)}
}

func TestJudge(t *testing.T) {
	const n = 4*128 + 5
	const handed = `,"kv_transfer_params":{"remote_port":1}`
	plain := func(text string, cached int) Answer {
		return Answer{Status: 200, Body: fmt.Appendf(nil,
			`{"choices":[{"text":%q}],"usage":{"prompt_tokens":%d,`+
				`"prompt_tokens_details":{"cached_tokens":%d}}}`, text, n, cached)}
	}
	good := reply(n, 0, "x", handed)
	refused := Answer{Status: 500, Body: []byte(`{"error":"KV load"}`)}
	gone := Answer{Err: errors.New("connection refused")}
	counted := func(hits, failed float64) Counters { return Counters{hits, failed, 0} }
	for _, c := range []struct {
		name                string
		prefill, split, own Answer
		asked               Answer // with likely alternatives, if the case has any
		grown               Counters
		kind                Kind
		tokens              int
		leg, why            string
	}{
		{
			name: "all of it", prefill: good, split: reply(n, n, "a b c", ""), own: reply(n, 0, "a b c", ""),
			kind: Moved, tokens: n,
		},
		{
			name: "all but what is withheld", prefill: good, split: reply(n, n-3, "a", ""), own: reply(n, 0, "a", ""),
			kind: Moved, tokens: n - 3,
		},
		{
			name: "computed again", prefill: good, split: reply(n, 0, "a b", ""), own: reply(n, 0, "a b", ""),
			kind: Nothing, why: "found nothing",
		},
		{
			name: "computed again after a failure", prefill: good, split: reply(n, 0, "a", ""),
			own: reply(n, 0, "a", ""), grown: counted(517, 1), kind: Nothing, why: "1 failed transfers",
		},
		{
			name: "wrong", prefill: good, split: reply(n, n, "a x c", ""), own: reply(n, 0, "a b c", ""), kind: Wrong,
			asked: likely(n, "a b c"), tokens: -1,
			why: `"a x c", where the decode engine says "a b c" itself; token 2 is`,
		},
		{
			name: "wrong, as likely as not", prefill: good, split: reply(n, n, "a far c", ""),
			own: reply(n, 0, "a b c", ""), kind: Wrong, asked: likely(n, "a b c"), tokens: -1, why: `token 2`,
		},
		{
			name: "shorter", prefill: good, split: reply(n, n, "a", ""), own: reply(n, 0, "a b", ""), kind: Wrong,
			asked: likely(n, "a b"), tokens: -1, why: "1 tokens",
		},
		{
			name: "a matter of rounding", prefill: good, split: reply(n, n, "a x y z", ""),
			own: reply(n, 0, "a b c d", ""), asked: likely(n, "a b(x) c d"), kind: Moved, tokens: n,
		},
		{
			name: "differs and is not told what is likely", prefill: good, split: reply(n, n, "a x", ""),
			own: reply(n, 0, "a b", ""), asked: refused, kind: Wrong, tokens: -1, why: "KV load",
		},
		{name: "texts alone", prefill: good, split: plain("u", n), own: plain("u", 0), kind: Moved, tokens: n},
		{
			name: "texts alone, wrong", prefill: good, split: plain("u", n), own: plain("v", 0), kind: Wrong,
			asked: likely(n, "v"), tokens: -1, why: `"u"`,
		},
		{
			name: "no details", prefill: good, split: reply(n, -1, "a", ""), own: reply(n, -1, "a", ""), kind: Unclear,
			tokens: -1, grown: Unknown(), why: "cached_tokens",
		},
		{
			name: "no details, counters move", prefill: good, split: reply(n, -1, "a", ""), own: reply(n, -1, "a", ""),
			kind: Unclear, tokens: -1, grown: counted(517, 0),
		},
		{
			name: "no details, counters rest", prefill: good, split: reply(n, -1, "a", ""), own: reply(n, -1, "a", ""),
			kind: Nothing, grown: counted(0, 0), why: "have not grown",
		},
		{
			name: "nothing handed over", prefill: reply(n, 0, "x", `,"kv_transfer_params":null`), kind: Failed,
			tokens: -1, leg: "prefill", why: "no connector",
		},
		{
			name: "prefill counts otherwise", prefill: reply(n-1, 0, "x", handed), kind: Failed, tokens: -1,
			leg: "prefill", why: "516 were counted",
		},
		{name: "prefill is gone", prefill: gone, kind: Failed, tokens: -1, leg: "prefill", why: "refused"},
		{
			name: "the load fails", prefill: good, split: refused, grown: counted(0, 1), kind: Failed, tokens: -1,
			leg: "decode", why: "KV load",
		},
		{
			name: "own answer fails", prefill: good, split: reply(n, n, "a", ""), own: refused, kind: Failed,
			tokens: -1, leg: "own", why: "500",
		},
		{
			name: "no JSON", prefill: good, split: Answer{Status: 200, Body: []byte("<html>")}, kind: Failed,
			tokens: -1, leg: "decode", why: "cannot be read",
		},
		{
			name: "no choice", prefill: good, split: Answer{Status: 200, Body: []byte("{}")}, kind: Failed, tokens: -1,
			leg: "decode", why: "0 choices",
		},
	} {
		q := question(Engine{})
		asked := 0
		ask := func() Answer {
			asked++
			return c.asked
		}
		v := q.Judge(c.prefill, c.split, c.own, ask, Counters{100, 7, 0},
			Counters{100 + c.grown.ExternalHits, 7 + c.grown.FailedTransfers, 0})
		if want := min(c.asked.Status, 1); asked != want {
			t.Errorf("%s: asked %d times what else is likely, want %d", c.name, asked, want)
		}
		if v.Kind != c.kind || v.Tokens != c.tokens || v.Prompt != n || v.Leg != c.leg ||
			!strings.Contains(v.Why, c.why) {
			t.Errorf("%s: %+v, want %v of %d tokens, leg %q, %q in why", c.name, v, c.kind, c.tokens, c.leg, c.why)
		}
		if early := q.JudgePrefill(c.prefill); (early.Kind == Failed) != (c.leg == "prefill") {
			t.Errorf("%s: the prefill answer alone is judged %v", c.name, early)
		}
		if text := v.String(); !strings.HasPrefix(text, c.kind.String()) || len(text) < 20 {
			t.Errorf("%s: told as %q", c.name, text)
		}
	}
	if u := Unknown(); !math.IsNaN(u.ExternalHits) || !math.IsNaN(u.FailedTransfers) {
		t.Errorf("unknown counters: %+v", u)
	}
}

// Of two engines, the larger blocks and the shorter context are used. A value that one does not report is the
// other's.
func TestBetween(t *testing.T) {
	for _, c := range []struct{ from, to, want Engine }{
		{Engine{"a", 16, 1000}, Engine{"b", 32, 2000}, Engine{"b", 32, 1000}},
		{Engine{"a", 64, 3000}, Engine{"b", 32, 2000}, Engine{"b", 64, 2000}},
		{Engine{"a", 0, 0}, Engine{"b", 32, 2000}, Engine{"b", 32, 2000}},
		{Engine{"a", 16, 1000}, Engine{"b", 0, 0}, Engine{"b", 16, 1000}},
	} {
		if got := Between(c.from, c.to); got != c.want {
			t.Errorf("from %+v to %+v: %+v, want %+v", c.from, c.to, got, c.want)
		}
	}
}
