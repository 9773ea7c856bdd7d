package connector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
)

// moriioParams are the params of vLLM 0.32.0's MoRI-IO for a prompt of 100 tokens in blocks of 32. A port is
// a number or a text, as in the engine's configuration.
const moriioParams = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4]],` +
	`"remote_engine_id":"10.0.0.7:6301","remote_host":"10.0.0.7","remote_handshake_port":6301,` +
	`"remote_notify_port":"61005","remote_dp_rank":1,"remote_dp_rank_override":true,"remote_dp_size":2,` +
	`"remote_dp_size_local":2,"tp_size":1,"transfer_id":"a1","remote_prefill_cached_tokens":64}`

func TestMoRIIOGolden(t *testing.T) {
	leg, edit, header := newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2],"max_tokens":1,"temperature":0}`)
	if err := (MoRIIO{}).EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" || leg.Loads {
		t.Errorf("prefill: %v, headers %v, loads %v", err, header, leg.Loads)
	}
	golden(t, "moriio-prefill.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2], "max_tokens":64, "stream":true, "x":1.50}`)
	reply := NewReply([]byte(moriioParams), start, 100, 32)
	err := MoRIIO{}.EditDecode(leg, pair, reply, inTime)
	if err != nil || header["X-Request-Id"] != "a1" || !leg.Loads {
		t.Errorf("decode: %v, headers %v, loads %v", err, header, leg.Loads)
	}
	golden(t, "moriio-decode.golden", edit.Append(nil))
	if leg, _, _ = newLeg(t, openai.Completions, completion); MoRIIO.EditDecode(
		MoRIIO{}, leg, pair, reply, inTime) != ErrTaken || leg.Loads {
		t.Error("params are used twice")
	}

	leg, edit, _ = newLeg(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	leg.ReuseIDs = ids(100)
	local := strings.Replace(moriioParams, `"remote_host":"10.0.0.7"`, `"remote_host":"127.0.0.1"`, 1)
	if err := (MoRIIO{}).EditDecode(leg, pair, NewReply([]byte(local), start, 100, 32), inTime); err != nil {
		t.Error(err)
	}
	golden(t, "moriio-decode-chat.golden", edit.Append(nil))
}

// One row for each mistake that ends, hangs or corrupts a decode engine.
func TestMoRIIORefuses(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no engine: wrong text", `"remote_engine_id"`, `"engine"`, "remote_engine_id"},
		{"no blocks: wrong text", `"remote_block_ids"`, `"blocks"`, "remote_block_ids"},
		{"null blocks: wrong text", `[[1,2,3,4]]`, `null`, "remote_block_ids"},
		{"empty blocks: wrong text", `[[1,2,3,4]]`, `[]`, "remote_block_ids"},
		{"flat blocks: D dies", `[[1,2,3,4]]`, `[1,2,3,4]`, "remote_block_ids"},
		{"too few blocks: wrong text, or D dies", `[[1,2,3,4]]`, `[[1,2,3]]`, "remote_block_ids"},
		{"too many blocks: D reads the wrong ones", `[[1,2,3,4]]`, `[[1,2,3,4,5]]`, "remote_block_ids"},
		{"no host: D dies", `"remote_host"`, `"host"`, "remote_host"},
		{"empty host: D dies", `"remote_host":"10.0.0.7"`, `"remote_host":""`, "remote_host"},
		{"no handshake: D dies", `"remote_handshake_port"`, `"port"`, "remote_handshake_port"},
		{"no notify: D dies", `"remote_notify_port"`, `"port"`, "remote_notify_port"},
		{"notify null: D dies", `"61005"`, `null`, "remote_notify_port"},
		{"handshake is no number: D dies", `6301,`, `"many",`, "remote_handshake_port"},
		{"no rank: D reads of rank 0", `"remote_dp_rank":1,`, ``, "remote_dp_rank"},
		{"rank null: D dies", `"remote_dp_rank":1`, `"remote_dp_rank":null`, "remote_dp_rank"},
		{"size null: D dies", `"remote_dp_size":2`, `"remote_dp_size":null`, "remote_dp_size"},
		{"local size null: D dies", `_local":2`, `_local":null`, "remote_dp_size_local"},
		{"no id: P keeps the blocks", `,"transfer_id":"a1"`, ``, "transfer_id"},
		{"another id: P frees other blocks", `"a1"`, `"sidecar-x"`, "transfer_id"},
		{"flag false", `"do_remote_prefill":true`, `"do_remote_prefill":false`, "do_remote_prefill"},
		{"ids", `"tp_size"`, `"prompt_token_ids":[1],"tp_size"`, "prompt_token_ids"},
		{"NIXL pull", moriioParams, realParams, "NIXL"},
		{"Mooncake", `"tp_size"`, `"remote_bootstrap_addr":"http://p","tp_size"`, "Mooncake"},
		{"nothing", moriioParams, `null`, "kv_transfer_params"},
	} {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		params := strings.Replace(moriioParams, c.from, c.to, 1)
		err := MoRIIO{}.EditDecode(leg, pair, NewReply([]byte(params), start, 100, 32), inTime)
		got := fmt.Sprint(err)
		if bad, is := errors.AsType[*InvalidParams](err); is {
			got = bad.Field
		}
		if f, is := errors.AsType[*Foreign](err); is {
			got = f.Protocol
			const says = `connector.type is moriio: start the engines with "kv_connector":"MoRIIOConnector"`
			if !strings.Contains(f.Error(), says) {
				t.Errorf("%s: %v, want %s", c.name, f, says)
			}
		}
		if got != c.want || string(edit.Append(nil)) != completion || leg.Loads {
			t.Errorf("%s: %v, want one about %s; the body is %s", c.name, err, c.want, edit.Append(nil))
		}
	}
}

// A late reply is not used. It is still given back, with the keys that its decode engine needs.
func TestMoRIIOIsLate(t *testing.T) {
	reply := NewReply([]byte(moriioParams), start, 100, 32)
	late := Use{Now: start.Add(16 * time.Second), Margin: 15 * time.Second}
	leg, edit, _ := newLeg(t, openai.Completions, completion)
	if err := (MoRIIO{}).EditDecode(leg, pair, reply, late); err != ErrExpired || leg.Loads {
		t.Errorf("late: %v", err)
	}
	late.GiveBack = true
	if err := (MoRIIO{}).EditDecode(leg, pair, reply, late); err != nil || !leg.Loads ||
		!strings.Contains(string(edit.Append(nil)), `"remote_notify_port":"61005"`) {
		t.Errorf("given back: %v, %s", err, edit.Append(nil))
	}
}

// A client's id never reaches D, which would take the address of P from it: "x" is none, and ends D.
func TestMoRIIODropsIDsOfClients(t *testing.T) {
	for kind, prompt := range map[openai.Kind]string{openai.Completions: "prompt", openai.Responses: "input"} {
		for _, name := range []string{"request_id", `request\u005fid`} {
			leg, edit, header := newLeg(t, kind,
				`{"`+name+`":"___prefill_addr_x___decode_addr_y","model":"m","`+prompt+`":"hi"}`)
			leg.ReuseIDs = ids(100)
			err := MoRIIO{}.EditDecode(leg, pair, NewReply([]byte(moriioParams), start, 100, 32), inTime)
			if body := string(edit.Append(nil)); err != nil || strings.Contains(body, "addr_") {
				t.Errorf("%s: %v, leg 2 %s", name, err, body)
			}
			if header["X-Request-Id"] != "a1" {
				t.Errorf("headers %v", header)
			}
		}
	}
}
