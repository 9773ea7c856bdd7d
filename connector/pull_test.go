package connector

import "testing"

// The prefill leg names the engine from which blocks are pulled, beside all that the leg has without it.
func TestPrefillNamesItsSource(t *testing.T) {
	pair := Pair{AttemptID: "r-1", Source: Source{Host: `h"1`, Port: 5711}}
	const source = `"remote_kv_source":{"kv_request_id":"r-1","remote_host":"h\"1","remote_port":5711}}`
	without := string(prefillParams[:len(prefillParams)-1])
	for _, tt := range []struct {
		pair  Pair
		reuse []byte
		want  string
	}{
		{Pair{AttemptID: "r-1"}, nil, without + "}"},
		{pair, nil, without + "," + source},
		{pair, []byte("[1,2]"), `{"prompt_token_ids":[1,2],` + without[1:] + "," + source},
	} {
		for _, c := range []Connector{NIXL{}, NIXLPush{}} {
			body := &lastSet{}
			if err := c.EditPrefill(&Leg{Body: body, ReuseIDs: tt.reuse}, tt.pair); err != nil {
				t.Fatal(err)
			}
			if got := string(body.value); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		}
	}
}

// A leg without a transfer names a source, the ids of its prompt, both or nothing.
func TestWholeLegs(t *testing.T) {
	const source = `"remote_kv_source":{"kv_request_id":"r-1","remote_host":"h1","remote_port":5710}`
	for _, tt := range []struct {
		whole Whole
		want  string
	}{
		{Whole{AttemptID: "r-1"}, ""},
		{Whole{IDs: []byte("[1,2]")}, `{"prompt_token_ids":[1,2]}`},
		{Whole{Source: Source{"h1", 5710}, AttemptID: "r-1"}, "{" + source + "}"},
		{Whole{[]byte("[1,2]"), Source{"h1", 5710}, "r-1"}, `{"prompt_token_ids":[1,2],` + source + "}"},
	} {
		body := &lastSet{}
		if tt.whole.Edit(body); string(body.value) != tt.want {
			t.Errorf("got %s, want %s", body.value, tt.want)
		}
	}
}
