package openai

import "testing"

// Lists are merged by id; the entries stay unchanged.
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
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := string(MergeModels([][]byte{[]byte(`{"data":[]}`)})); got != `{"data":[]}` {
		t.Errorf("an empty list became %s", got)
	}
}
