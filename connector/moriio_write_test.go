package connector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

var writeMoRI = MoRIIOWrite{Ports{Handshake: 6301, Notify: 61005}}

// writeParams are moriioParams as P answers to a leg 1 of WRITE mode.
var writeParams = strings.Replace(moriioParams, `"a1"`, `"a1 10.0.0.8 6301"`, 1)

func TestMoRIIOWriteGolden(t *testing.T) {
	leg, edit, header := newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2],"max_tokens":1,"temperature":0,"stop":["x"],"stop_token_ids":[3]}`)
	if err := writeMoRI.EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" || leg.Loads {
		t.Errorf("prefill: %v, headers %v, loads %v", err, header, leg.Loads)
	}
	golden(t, "moriio-write-prefill.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2], "max_tokens":64, "stream":true, "x":1.50}`)
	reply := NewReply([]byte(writeParams), start, 100, 32)
	err := writeMoRI.EditDecode(leg, pair, reply, inTime)
	if err != nil || header["X-Request-Id"] != "a1" || !leg.Loads {
		t.Errorf("decode: %v, headers %v, loads %v", err, header, leg.Loads)
	}
	golden(t, "moriio-write-decode.golden", edit.Append(nil))
	if leg, _, _ = newLeg(t, openai.Completions, completion); writeMoRI.EditDecode(
		leg, pair, reply, inTime) != ErrTaken || leg.Loads {
		t.Error("params are used twice")
	}

	leg, edit, _ = newLeg(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	leg.ReuseIDs = ids(100)
	local := strings.Replace(writeParams, `"remote_host":"10.0.0.7"`, `"remote_host":"127.0.0.1"`, 1)
	if err := writeMoRI.EditDecode(leg, pair, NewReply([]byte(local), start, 100, 32), inTime); err != nil {
		t.Error(err)
	}
	golden(t, "moriio-write-decode-chat.golden", edit.Append(nil))
}

// A decode leg goes to the engine that leg 1 has named, or nowhere: P writes into no other. Any engine can
// give the blocks back.
func TestMoRIIOWriteKeepsItsDecode(t *testing.T) {
	other := pair
	other.Decode = replica.Replica{ID: "d1", Role: replica.Decode, Host: "10.0.0.9"}
	reply := NewReply([]byte(writeParams), start, 100, 32)
	leg, edit, _ := newLeg(t, openai.Completions, completion)
	err := writeMoRI.EditDecode(leg, other, reply, inTime)
	if bad, is := errors.AsType[*InvalidParams](err); !is || bad.Field != "transfer_id" || leg.Loads {
		t.Errorf("%v, %s", err, edit.Append(nil))
	}
	back := inTime
	back.GiveBack = true
	if err := writeMoRI.EditDecode(leg, other, reply, back); err != nil || !leg.Loads {
		t.Errorf("given back: %v", err)
	}
}

// One row for each mistake that ends a decode engine, or lets its leg wait for ever.
func TestMoRIIOWriteRefuses(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no host: D dies", `"remote_host"`, `"host"`, "remote_host"},
		{"no notify: D dies", `"remote_notify_port"`, `"port"`, "remote_notify_port"},
		{"rank null: D dies", `"remote_dp_rank":1`, `"remote_dp_rank":null`, "remote_dp_rank"},
		{"no rank: D tells another rank", `"remote_dp_rank":1,`, ``, "remote_dp_rank"},
		{"size null: D dies", `"remote_dp_size":2`, `"remote_dp_size":null`, "remote_dp_size"},
		{"no id: D waits", `,"transfer_id":"a1 10.0.0.8 6301"`, ``, "transfer_id"},
		{"another id: D waits", `"a1 10.0.0.8 6301"`, `"sidecar-x"`, "transfer_id"},
		{"D does not lead: it waits", `"tp_size"`, `"is_request_leader":false,"tp_size"`, "is_request_leader"},
		{"too few blocks: wrong text", `[[1,2,3,4]]`, `[[1,2,3]]`, "remote_block_ids"},
		{"too many blocks: D waits", `[[1,2,3,4]]`, `[[1,2,3,4,5]]`, "remote_block_ids"},
		{"NIXL pull", writeParams, realParams, "NIXL"},
		{"nothing", writeParams, `null`, "kv_transfer_params"},
	} {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		params := strings.Replace(writeParams, c.from, c.to, 1)
		err := writeMoRI.EditDecode(leg, pair, NewReply([]byte(params), start, 100, 32), inTime)
		got := fmt.Sprint(err)
		if bad, is := errors.AsType[*InvalidParams](err); is {
			got = bad.Field
		}
		if f, is := errors.AsType[*Foreign](err); is {
			got = f.Protocol
		}
		if got != c.want || string(edit.Append(nil)) != completion || leg.Loads {
			t.Errorf("%s: %v, want one about %s; the body is %s", c.name, err, c.want, edit.Append(nil))
		}
	}
	leg, _, _ := newLeg(t, openai.Completions, completion)
	reply := NewReply([]byte(writeParams), start, 100, 32)
	late := Use{Now: start.Add(16 * time.Second), Margin: 15 * time.Second}
	if err := writeMoRI.EditDecode(leg, pair, reply, late); err != ErrExpired || leg.Loads {
		t.Errorf("late: %v", err)
	}
}

// Leg 1 needs an address of D that P can reach, or P stands still. An id of the client never reaches P, which
// would take the address from it.
func TestMoRIIOWriteNamesItsDecode(t *testing.T) {
	for _, host := range []string{"", "127.0.0.1", "localhost", "[::1]"} {
		here := pair
		here.Decode.Host = host
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		if err := writeMoRI.EditPrefill(leg, here); err == nil || string(edit.Append(nil)) != completion {
			t.Errorf("%q: %v, %s", host, err, edit.Append(nil))
		}
		if here.Prefill.Host = "127.0.0.1"; host != "" && writeMoRI.EditPrefill(leg, here) != nil {
			t.Errorf("%q: one machine is refused", host)
		}
	}
	leg, edit, _ := newLeg(t, openai.Chat, `{"request_id":"___decode_addr_x_y","model":"m","messages":[]}`)
	err := writeMoRI.EditPrefill(leg, pair)
	if body := string(edit.Append(nil)); err != nil || strings.Contains(body, "addr_") {
		t.Errorf("%v, %s", err, body)
	}
}
