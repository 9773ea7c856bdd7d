package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func valid(text string) error {
	s := Scanner{Data: []byte(text)}
	s.Skip()
	s.End()
	return s.Err()
}

func TestSkipRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "unexpected end"},
		{"only space", " \n", "unexpected end"},
		{"garbage behind", `{} x`, "text after the value"},
		{"two values", `1 2`, "text after the value"},
		{"comma at the end", `[1,]`, "unexpected character"},
		{"comma at the end of whole numbers", `[1, 22,333,]`, "unexpected character"},
		{"a leading zero among whole numbers", `[1,02,3]`, "leading zero"},
		{"open list of whole numbers", `[1,22`, "unexpected end"},
		{"comma at the end of an object", `{"a":1,}`, "unexpected character"},
		{"no colon", `{"a" 1}`, "unexpected character"},
		{"name without quotes", `{a:1}`, "unexpected character"},
		{"single quotes", `{'a':1}`, "unexpected character"},
		{"leading zero", `01`, "leading zero"},
		{"plus", `+1`, "unexpected character"},
		{"no digits behind the point", `1.`, "unexpected end"},
		{"no digits in the exponent", `1e+`, "unexpected end"},
		{"minus alone", `-`, "unexpected end"},
		{"not a number", `NaN`, "unexpected character"},
		{"infinity", `-Infinity`, "unexpected character"},
		{"half a word", `tru`, "unexpected character"},
		{"open string", `"abc`, "without an end"},
		{"open escape", `"\`, "without an end"},
		{"bad escape", `"\x41"`, "invalid escape"},
		{"short unicode escape", `"\u00"`, "invalid escape"},
		{"line break in a string", "\"a\nb\"", "control character"},
		{"nul in a string", "\"a\x00b\"", "control character"},
		{"control character behind eight plain ones", "\"abcdefghij\x1f\"", "control character"},
		{"byte order mark", "\ufeff{}", "unexpected character"},
		{"comment", `{/**/}`, "unexpected character"},
		{"too deep", strings.Repeat("[", Depth+1) + strings.Repeat("]", Depth+1), "nested too deep"},
	} {
		if err := valid(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.want)
		}
	}
	if err := valid(strings.Repeat("[", Depth) + strings.Repeat("]", Depth)); err != nil {
		t.Errorf("nesting of %d: %v", Depth, err)
	}
}

func TestDepthIsNotWidth(t *testing.T) {
	for _, element := range []string{`[]`, `{"a":[1]}`, `[1]`} {
		if err := valid("[" + strings.Repeat(element+",", 2*Depth) + "1]"); err != nil {
			t.Errorf("many of %s: %v", element, err)
		}
	}
	s := Scanner{Data: []byte("[" + strings.Repeat("[1],", 2*Depth) + "[]]")}
	for range s.Elements() {
		s.IDs(nil)
	}
	if s.End(); s.Err() != nil {
		t.Errorf("many arrays of ids: %v", s.Err())
	}
}

func TestErrorsDoNotQuoteTheText(t *testing.T) {
	if err := valid(`{"prompt": "secret" secret}`); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want one without the text", err)
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		`"plain"`: "plain", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u006bv"`: "kv", `"\u006BV"`: "kV",
		`"\ud83d\ude00!"`: "😀!", `"\ud83d"`: "\ufffd", `"\ud83dx"`: "\ufffdx", `"\ud83d\u0041"`: "\ufffdA",
		`"\ude00\ud83d"`: "\ufffd\ufffd", `""`: "",
	} {
		if got := Text([]byte(raw)); got != want {
			t.Errorf("Text(%s) = %q, want %q", raw, got, want)
		}
		if !Equal([]byte(raw), want) && !strings.Contains(want, "\ufffd") {
			t.Errorf("Equal(%s, %q) = false", raw, want)
		}
		var std string
		if err := json.Unmarshal([]byte(raw), &std); err != nil || std != want {
			t.Errorf("encoding/json reads %s as %q, %v", raw, std, err)
		}
	}
}

func TestTorn(t *testing.T) {
	for raw, want := range map[string]bool{
		`"a"`: false, `"\ud83d\ude00"`: false, `["\ufffd","\\ud800"]`: false, `"\u0041\n"`: false,
		`"x\ud800"`: true, `"\ude00\ud83d"`: true, `"\ud800\u0041"`: true,
		`["a",{"b":"\ud83d\ude00\uDC00"}]`: true, `"\ud800\ud83d\ude00"`: true, `7`: false,
	} {
		if Torn([]byte(raw)) != want {
			t.Errorf("Torn(%s) is %t", raw, !want)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\\b\t\n\v\f\r\x00\x1f", "ümläut 😀", "bad \xff utf8"} {
		var got string
		if err := json.Unmarshal(AppendString(nil, s), &got); err != nil ||
			got != strings.ToValidUTF8(s, "\ufffd") {
			t.Errorf("AppendString(%q) reads back as %q, %v", s, got, err)
		}
	}
}

func TestIDs(t *testing.T) {
	for text, want := range map[string][]uint32{
		`[]`: {}, ` [ ] `: {}, `[0]`: {0}, "[1, 22\n,\t333 ]": {1, 22, 333}, `[4294967295]`: {4294967295},
		`[01]`: nil, `[-1]`: nil, `[1.0]`: nil, `[1e2]`: nil, `["1"]`: nil, `[true]`: nil, `[null]`: nil,
		`[4294967296]`: nil, `[99999999999999999999]`: nil,
		`[1,]`: nil, `[,1]`: nil, `[1 2]`: nil, `[1`: nil, `[`: nil, `[[1]]`: nil, `1`: nil, ``: nil,
	} {
		s := Scanner{Data: []byte(text)}
		got := s.IDs(nil)
		s.End()
		if ok := s.Err() == nil; ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("IDs(%s) = %v, %v; want %v", text, got, s.Err(), want)
		}
	}
	for text, want := range map[string][]uint32{
		`[]`: {}, `[0]`: {0}, "[1.0, 2e1\n,\t-0 ]": {
			1, 20,
			0,
		}, `[4294967295.0]`: {4294967295}, `[1.0000000000000001]`: {1},
		`[1.5]`: nil, `[-1.0]`: nil, `[4294967296.0]`: nil, `[1e400]`: nil, `["1"]`: nil, `[true]`: nil,
		`[1,]`: nil,
		`[1.0`: nil, `[01]`: nil, `1`: nil,
	} {
		s := Scanner{Data: []byte(text)}
		got := s.WholeIDs(nil)
		s.End()
		if ok := s.Err() == nil; ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("WholeIDs(%s) = %v, %v; want %v", text, got, s.Err(), want)
		}
	}
	if got := string(
		AppendIDs(nil, []uint32{0, 9, 10, 99, 100, 4294967295}),
	); got != "[0,9,10,99,100,4294967295]" {
		t.Errorf("AppendIDs = %s", got)
	}
}

// Everything is read as encoding/json reads it.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e-3,"x\u00e9",null,true,{}],"b":false}`, `[[],{}]`, `"\ud800"`, `-0`, "\"\x7f\"", `{"":""}`,
		` 1 `, `[1,2,3]`, `[10, 2,3 ,4.5,-6,"x",[7,8],0]`, `[1,2`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return
		}
		err := valid(string(text))
		if want := json.Valid(text); (err == nil) != want && !strings.Contains(err.Error(), "too deep") {
			t.Fatalf("valid %v, encoding/json says %v: %q", err, want, text)
		}
		if err != nil {
			return
		}
		s := Scanner{Data: text}
		switch s.Peek() {
		case '"':
			var want string
			if raw := s.String(); json.Unmarshal(raw, &want) != nil || Text(raw) != want || !Equal(raw, want) {
				t.Fatalf("Text(%s) = %q, want %q", raw, Text(raw), want)
			}
		case '{':
			n := 0
			for key := range s.Members() {
				if at := s.KeyAt(key); !bytes.Equal(text[at:at+len(key)], key) {
					t.Fatalf("KeyAt(%s) = %d in %s", key, at, text)
				}
				s.Skip()
				n++
			}
			var want map[string]json.RawMessage
			if err := json.Unmarshal(text, &want); err != nil || len(want) > n {
				t.Fatalf("%d members, encoding/json has %d, %v", n, len(want), err)
			}
		case '[':
			var want []uint32
			ids := s.IDs(nil)
			if s.Err() == nil && (json.Unmarshal(text, &want) != nil || !slices.Equal(ids, want)) {
				t.Fatalf("IDs(%s) = %v, want %v", text, ids, want)
			}
		}
	})
}

func BenchmarkIDs(b *testing.B) {
	ids := make([]uint32, 131072)
	for i := range ids {
		ids[i] = uint32(i*7919) % 128256
	}
	text := AppendIDs(nil, ids)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s := Scanner{Data: text}
		if s.IDs(ids[:0]); s.Err() != nil {
			b.Fatal(s.Err())
		}
	}
}

func BenchmarkString(b *testing.B) {
	text := []byte(`"` + strings.Repeat("A prompt of plain words, as most are. ", 16<<10) + `"`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := Scanner{Data: text}
		if s.Skip(); s.Err() != nil {
			b.Fatal(s.Err())
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	text := strings.Repeat("Plain words, \"quoted\" ones, größere.\n", 32)
	var dst []byte
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		dst = AppendString(dst[:0], text)
	}
}
