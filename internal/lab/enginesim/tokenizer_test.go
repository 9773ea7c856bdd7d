package enginesim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTokenizer(f *testing.F) {
	for _, seed := range []string{
		"", " ", "hello blocks", "  two  spaces ", " the the\nthe", "größe 漢字 \x00", " ba bababa", "The blocks",
	} {
		f.Add(seed)
	}
	voc := newVocabulary(4096)
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		ids := voc.tokenize(nil, text)
		if got := voc.detokenize(ids); got != text {
			t.Errorf("%q became %q through ids %v", text, got, ids)
		}
		if slices.Max(append(ids, 0)) >= 4096 {
			t.Errorf("%q: id outside of the vocabulary in %v", text, ids)
		}
	})
}

// The vocabulary has the requested number of ids, no text twice, and is the same every time.
func TestVocabulary(t *testing.T) {
	for _, size := range []int{0, 2048, 4096, 151936} {
		v, again := newVocabulary(size), newVocabulary(size)
		if len(v.text) != v.size || v.size < size {
			t.Errorf("size %d: %d texts for %d ids", size, len(v.text), v.size)
		}
		seen := make(map[string]bool)
		for id, text := range v.text[firstByte:] {
			if seen[text] {
				t.Fatalf("size %d: id %d repeats %q", size, id+firstByte, text)
			}
			seen[text] = true
		}
		if !slices.Equal(v.text, again.text) {
			t.Errorf("size %d: two vocabularies differ", size)
		}
	}
}

// English text becomes one token per word, and each invented word is one token.
func TestWordsAreTokens(t *testing.T) {
	v := newVocabulary(4096)
	if n := len(v.tokenize(nil, " the model and the cache")); n != 5 {
		t.Errorf("%d tokens, want 5", n)
	}
	for id := firstWord; id < v.size; id++ {
		if got := v.tokenize(nil, v.text[id]); len(got) != 1 || int(got[0]) != id {
			t.Fatalf("%q is %v, want %d", v.text[id], got, id)
		}
	}
}

// The template separates turns: the ids of a longer conversation begin with the ids of the shorter one.
func TestChatTemplate(t *testing.T) {
	v := newVocabulary(4096)
	turns := []chatMessage{{"system", "Be brief."}, {"user", "Hello"}, {"assistant", "Yes"}, {"user", "More"}}
	one, two := v.chat(nil, turns[:2]), v.chat(nil, turns)
	if !slices.Equal(one, two[:len(one)]) {
		t.Errorf("%v is no prefix of %v", one, two)
	}
	if one[0] != tokBOS || one[1] != tokSystem || one[len(one)-1] != tokAssistant {
		t.Errorf("template %v", one)
	}
}

// The scanner accepts all JSON that encoding/json accepts, and reads the same values.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":[1, 2,3 ],"max_tokens":5.0}`, `{"prompt":[[1],[2,]]}`, `{"prompt":"a\u00e9\n"}`, `[1,2]`,
		`{"a":{"b":[true,null,-1e5]}}`, `{"prompt":[12345678901]}`, `{"prompt":[1 ,2]}`, ` "0\\`,
	} {
		f.Add(seed)
	}
	voc := newVocabulary(512)
	f.Fuzz(func(t *testing.T, body string) {
		s := scan([]byte(body))
		s.Value()
		if err := s.end(); err != nil && json.Valid([]byte(body)) &&
			strings.Count(body, "[")+strings.Count(body, "{") < maxDepth {
			t.Errorf("%q: %v", body, err)
		}
		var want struct{ Prompt []uint32 }
		if json.Unmarshal([]byte(body), &want) != nil || strings.Count(strings.ToLower(body), "prompt") != 1 ||
			!strings.Contains(body, `"prompt"`) || !strings.HasPrefix(body, `{"prompt":[`) {
			return
		}
		p := newParams(atCompletions)
		if bad := p.parse(voc, &call{body: []byte(body)}); bad != nil {
			return
		}
		if len(p.prompts) == 1 && !slices.Equal(p.prompts[0], want.Prompt) {
			t.Errorf("%q: ids %v, want %v", body, p.prompts[0], want.Prompt)
		}
	})
}

func TestFloatsLookLikePython(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", 0.25: "0.25", 0.0004883408619216212: "0.0004883408619216212", 16384: "16384.0",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
}
