package connector_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// answered are the kv_transfer_params of a prefill engine's answer: they say where the blocks of 100
// tokens are.
const answered = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],` +
	`"remote_engine_id":"6df2bc3d","remote_request_id":"cmpl-a1","remote_host":"10.0.0.7","remote_port":5600,` +
	`"tp_size":1,"remote_num_tokens":100}`

var pair = connector.Pair{
	Prefill:   replica.Replica{ID: "p0", Host: "10.0.0.7", Facts: replica.Facts{BlockSize: 32, Blocks: 8191}},
	Decode:    replica.Replica{ID: "d0", Host: "10.0.0.8"},
	AttemptID: "a1", PromptTokens: 100,
}

// edited returns the body of a leg after edit.
func edited(body string, edit func(leg *connector.Leg) error) (string, error) {
	request, err := openai.Parse(openai.Completions, []byte(body), openai.Limits{})
	if err != nil {
		return "", err
	}
	e := request.Edit()
	if err := edit(&connector.Leg{Body: e}); err != nil {
		return "", err
	}
	return string(e.Append(nil)), nil
}

// Leg 1 asks the prefill engine to keep its blocks.
func ExampleNIXL_EditPrefill() {
	body, err := edited(`{"model": "m", "prompt": [1,2], "max_tokens": 1}`, func(leg *connector.Leg) error {
		return connector.NIXL{}.EditPrefill(leg, pair)
	})
	fmt.Println(strings.ReplaceAll(body, `,"`, "\n"+`,"`), err)
	// Output:
	// {"model": "m", "prompt": [1,2], "max_tokens": 1
	// ,"kv_transfer_params":{"do_remote_decode":true
	// ,"do_remote_prefill":false
	// ,"remote_engine_id":null
	// ,"remote_block_ids":null
	// ,"remote_host":null
	// ,"remote_port":null}} <nil>
}

// Leg 2 tells the decode engine where the blocks are. A reply gives its params out only once: a second
// decode engine would read blocks that were freed after the first, and would not notice.
func ExampleReply() {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	reply := connector.NewReply([]byte(answered), at, 100, 32)
	decode := func(leg *connector.Leg) error {
		return connector.NIXL{}.EditDecode(leg, pair, reply, connector.Use{Now: at.Add(time.Second)})
	}
	body, err := edited(`{"model":"m","prompt":[1,2]}`, decode)
	fmt.Println(body == `{"model":"m","prompt":[1,2],"kv_transfer_params":`+answered+`}`, err)

	_, err = edited(`{"model":"m","prompt":[1,2]}`, decode)
	fmt.Println(errors.Is(err, connector.ErrTaken), err)

	// It does not give the params out either if the prefill engine may have reused the blocks.
	reply = connector.NewReply([]byte(answered), at.Add(-time.Minute), 100, 32)
	_, err = edited(`{"model":"m","prompt":[1,2]}`, decode)
	fmt.Println(errors.Is(err, connector.ErrExpired), err)
	// Output:
	// true <nil>
	// true transfer params already taken
	// true transfer params too old
}
