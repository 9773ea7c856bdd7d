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
