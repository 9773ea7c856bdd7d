package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-router/tandem/internal/rawjson"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s (%v)", name, got, want, err)
	}
}

func TestEdit(t *testing.T) {
	const body = ` { "a" : 1.0e1 ,"b":[ 1, 2 ],"a":"again", "c" : {"x":null}  } `
	for _, tt := range []struct {
		name, body string
		edit       func(e *Edit)
		want       string
	}{
		{"nothing", body, func(e *Edit) {}, body},
		{
			"set in place", body, func(e *Edit) { e.Set("b", []byte("7")) },
			` { "a" : 1.0e1 ,"b":7,"a":"again", "c" : {"x":null}  } `,
		},
		{
			"set one that is there twice", body, func(e *Edit) { e.Set("a", []byte("7")) },
			` { "a" : 7 ,"b":[ 1, 2 ], "c" : {"x":null}  } `,
		},
		{
			"add", body, func(e *Edit) { e.Set("d", []byte("7")) },
			` { "a" : 1.0e1 ,"b":[ 1, 2 ],"a":"again", "c" : {"x":null},"d":7  } `,
		},
		{"delete the first", body, func(e *Edit) { e.Delete("a") }, ` { "b":[ 1, 2 ], "c" : {"x":null}  } `},
		{"delete the last", body, func(e *Edit) { e.Delete("c") }, ` { "a" : 1.0e1 ,"b":[ 1, 2 ],"a":"again"  } `},
		{"delete all", body, func(e *Edit) { e.Delete("a"); e.Delete("b"); e.Delete("c") }, ` {   } `},
		{
			"delete all and add", body,
			func(e *Edit) { e.Delete("a"); e.Delete("b"); e.Delete("c"); e.Set("d", []byte("7")) }, ` { "d":7  } `,
		},
		{"delete what is not there", body, func(e *Edit) { e.Delete("z") }, body},
		{
			"the last word counts", body,
			func(e *Edit) { e.Set("b", []byte("1")); e.Delete("b"); e.Set("b", []byte("2")) },
			` { "a" : 1.0e1 ,"b":2,"a":"again", "c" : {"x":null}  } `,
		},
		{"an escaped name", `{"\u0061":1}`, func(e *Edit) { e.Set("a", []byte("2")) }, `{"\u0061":2}`},
		{
			"empty object", `{ }`, func(e *Edit) { e.Set("a", []byte("1")); e.Set("b", []byte("2")) },
			`{"a":1,"b":2 }`,
		},
		{"a name that needs escapes", `{}`, func(e *Edit) { e.Set("a\"\n", []byte("1")) }, `{"a\"\n":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := bytes.TrimSpace([]byte(tt.body))
			e := editObject(raw)
			at := bytes.Index([]byte(tt.body), raw)
			tt.edit(e)
			got := tt.body[:at] + string(e.Append(nil)) + tt.body[at+len(raw):]
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if again := e.Append([]byte("x")); string(again) != "x"+string(e.Append(nil)) {
				t.Errorf("got %q from a second Append, want the same bytes", again)
			}
		})
	}
}

func TestEditPrompt(t *testing.T) {
	r := mustParse(t, Completions, `{"model":"m","prompt":["a", "b"],"n":1}`)
	if got := string(r.EditPrompt(1).Append(nil)); got != `{"model":"m","prompt":"b","n":1}` {
		t.Errorf("second prompt: got %s", got)
	}
}

// The golden files hold the bodies of both kinds of prefill legs, without the connector's params.
func TestLegsGolden(t *testing.T) {
	completion := mustParse(t, Completions, `{
  "model": "m", "prompt": "Once", "max_tokens": 50, "min_tokens": 2, "n": 1, "stream": true, `+
		`"stream_options": {"include_usage": true},
  "temperature": 0.70, "stop": ["\n"], "logprobs": 3, "seed": 1e2, "cache_salt": "tenant", `+
		`"priority": -1, "session_id": null,
  "guided_regex": "a+", "x_custom": {"keep": [1.50]}, "kv_transfer_params": {"do_remote_prefill": true}
}`)
	chat := mustParse(t, Chat,
		`{"messages":[{"role":"user","content":"hi"}],"model":"m","max_completion_tokens":9,`+
			`"top_logprobs":2,"logprobs":true,
 "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required",`+
			`"response_format":{"type":"json_object"},"reasoning_effort":"low",
 "structured_outputs":{"json":{}},"stop_token_ids":[7],"user":"u"}`)
	for name, e := range map[string]*Edit{
		"prefill-ids.golden":             completion.PrefillIDs([]byte("[12,850,4]")),
		"prefill-body-completion.golden": completion.PrefillBody(false),
		"prefill-body-chat.golden":       chat.PrefillBody(true),
		"prefill-ids-chat.golden":        chat.PrefillIDs([]byte("[1]")),
	} {
		body := e.Append(nil)
		if !json.Valid(body) {
			t.Errorf("%s: got %s, want JSON", name, body)
		}
		golden(t, name, body)
	}
}

// naiveEdit has the same result as Edit. It rewrites a list of members.
func naiveEdit(body []byte, ops []op) (members []op) {
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		members = append(members, op{rawjson.Text(key), s.Value()})
	}
	for _, o := range ops {
		done := false
		var next []op
		for _, m := range members {
			switch {
			case m.key != o.key:
				next = append(next, m)
			case o.value != nil && !done:
				next, done = append(next, o), true
			}
		}
		if o.value != nil && !done {
			next = append(next, o)
		}
		members = next
	}
	return members
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":2,"a":3}`), "a", "b", []byte("[]"))
	f.Add([]byte(` {"\u0061" : 1 , "b":2 } `), "b", "a", []byte(`"x"`))
	f.Add([]byte(`{}`), "b", "a", []byte(`1`))
	f.Fuzz(func(t *testing.T, body []byte, set, drop string, value []byte) {
		if !json.Valid(body) || !json.Valid(value) || set == drop {
			return
		}
		// A request contains the object, so that spaces around the object are part of the edit.
		r, err := Parse(Completions, append([]byte(`{"prompt":"x","in":`+string(body)+`}`), " \n"...), Limits{})
		if err != nil || r.Removed > 0 {
			return
		}
		s := rawjson.Scanner{Data: body}
		if s.Peek() != '{' {
			return
		}
		object := bytes.TrimSpace(body)
		value = bytes.TrimSpace(value)
		e := editObject(object)
		e.Set(set, value)
		e.Delete(drop)
		got := e.Append(nil)
		if !json.Valid(got) {
			t.Fatalf("%q: got %q, want JSON", object, got)
		}
		want := naiveEdit(object, []op{{set, value}, {drop, nil}})
		have := naiveEdit(got, nil)
		if len(have) != len(want) {
			t.Fatalf("%q: got %q with %d members, want %d", object, got, len(have), len(want))
		}
		for i := range want {
			if s := string(rawjson.AppendString(nil, want[i].key)); rawjson.Text([]byte(s)) != have[i].key ||
				!bytes.Equal(want[i].value, have[i].value) {
				t.Fatalf("%q: got %q, where member %d is wrong", object, got, i)
			}
		}
		checkLegs(t, r)
	})
}

func BenchmarkEditIDs(b *testing.B) {
	r := mustParse(b, Completions, string(idsBody(131072)))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		e := r.Edit()
		e.Set("kv_transfer_params", []byte("{}"))
		dst = e.Append(dst[:0])
	}
	b.SetBytes(int64(len(dst)))
}

// editObject starts an edit of raw, a valid JSON object.
func editObject(raw []byte) *Edit {
	e := &Edit{raw: raw, object: span{0, len(raw)}}
	s := rawjson.Scanner{Data: raw}
	for key := range s.Members() {
		at := s.KeyAt(key)
		s.Peek()
		value := span{start: s.Pos}
		s.Skip()
		value.end = s.Pos
		e.fields = append(e.fields, field{span{at, at + len(key)}, value})
	}
	return e
}

// EditOwn edits a body of the router. After a failed edit, or for an invalid body, it returns no body.
func TestEditOwn(t *testing.T) {
	set := func(e *Edit) error { e.Set("stream", []byte("true")); return nil }
	got, err := EditOwn([]byte(`{"model":"m","prompt":[1,2]}`), set)
	if err != nil || string(got) != `{"model":"m","prompt":[1,2],"stream":true}` {
		t.Errorf("got %s, %v; want the body with stream", got, err)
	}
	bad := errors.New("bad")
	if got, err := EditOwn([]byte(`{"model":"m","prompt":[1]}`), func(*Edit) error { return bad }); got != nil ||
		!errors.Is(err, bad) {
		t.Errorf("failed edit: got %s, %v; want only the error", got, err)
	}
	if got, err := EditOwn([]byte("{"), set); got != nil || err == nil {
		t.Errorf("invalid body: got %s, %v; want only an error", got, err)
	}
}
