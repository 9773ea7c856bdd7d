package openai

import "testing"

// MergeModels merges lists by id and does not change the entries.
func TestModelsOfSeveralEnginesAreOneList(t *testing.T) {
	const one = `{"object":"list","data":[{"id":"m","max_model_len":1.0},{"id":"a" ,"parent":"m"}],"x":1}`
	for _, tt := range []struct {
		name, other, want string
	}{
		{"the same", one, one},
		{"no list", `{"object":"error"}`, one},
		{"broken", `{"data":[{"id":"b"`, one},
		{"nothing", ``, one},
		{
			"more", `{"data":[{"id":"m","max_model_len":2},{"id":"b","n":1e0}]}`,
			`{"object":"list","data":[{"id":"m","max_model_len":1.0},{"id":"a" ,"parent":"m"},` +
				`{"id":"b","n":1e0}],"x":1}`,
		},
	} {
		if got := string(MergeModels([][]byte{[]byte(one), []byte(tt.other)})); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := string(MergeModels([][]byte{[]byte(`{"data":[]}`)})); got != `{"data":[]}` {
		t.Errorf("got %s for an empty list, want an empty list", got)
	}
}

// WithModel replaces the model of a body and changes no other byte.
func TestWithModel(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"chat"}`:                          `{"model":"a \"b\""}`,
		"{ \"x\":[\"model\"],\n\"model\" : \"c\" }": "{ \"x\":[\"model\"],\n\"model\" : \"a \\\"b\\\"\" }",
		`{"\u006dodel":"c","y":{"model":"c"},"model":1}`: "" +
			`{"\u006dodel":"a \"b\"","y":{"model":"c"},"model":"a \"b\""}`,
		`{}`: `{}`,
	} {
		if got := string(WithModel([]byte(body), `a "b"`)); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

// AddModels appends entries to a list, also to an empty list.
func TestAddModels(t *testing.T) {
	entries := [][]byte{ModelEntry("x", 0), ModelEntry("y", 10)}
	const x, y = `{"id":"x","object":"model","owned_by":"vllm"}`,
		`{"id":"y","object":"model","owned_by":"vllm","max_model_len":10}`
	for list, want := range map[string]string{
		`{"object":"list","data":[]}`:               `{"object":"list","data":[` + x + `,` + y + `]}`,
		`{"data":[ {"id":"a"} ],"object":"list"}`:   `{"data":[ {"id":"a"} ,` + x + `,` + y + `],"object":"list"}`,
		`{"object":"list"}`:                         `{"object":"list"}`,
		`not a list`:                                `not a list`,
		`{"object":"list","data":{"id":"a","b":1}}`: `{"object":"list","data":{"id":"a","b":1}}`,
	} {
		if got := string(AddModels([]byte(list), entries)); got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
	if got := string(AddModels([]byte(`{"data":[]}`), nil)); got != `{"data":[]}` {
		t.Errorf("got %s without entries, want the list unchanged", got)
	}
}
