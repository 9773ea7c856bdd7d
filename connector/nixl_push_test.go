package connector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
)

// pushParams are the params of vLLM 0.32.0's push connector: it does not say when its lease ends.
var pushParams = strings.NewReplacer(`"pull"`, `"push"`, `"remote_blocks_expiry_time":null,`, "").
	Replace(realParams)

func TestPushGolden(t *testing.T) {
	leg, edit, header := newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2],"max_tokens":1,"temperature":0}`)
	if err := (NIXLPush{}).EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("prefill: %v, headers %v", err, header)
	}
	golden(t, "nixl-push-prefill.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Chat,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)
	leg.ReuseIDs = []byte("[7,8,9]")
	if err := (NIXLPush{}).EditPrefill(leg, pair); err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("prefill of a chat: %v, headers %v", err, header)
	}
	golden(t, "nixl-push-prefill-chat.golden", edit.Append(nil))

	leg, edit, header = newLeg(t, openai.Completions,
		`{"model":"m", "prompt":[1,2], "max_tokens":64, "stream":true, "x":1.50}`)
	err := NIXLPush{}.EditDecode(leg, pair, NewReply([]byte(pushParams), start, 100, 32), inTime)
	if err != nil || header["X-Request-Id"] != "a1" {
		t.Errorf("decode: %v, headers %v", err, header)
	}
	golden(t, "nixl-push-decode.golden", edit.Append(nil))
}

// Without tp_size or another key of the address, a decode engine ends. An engine that pulls, or does not tell
// its mode, uses another protocol. The error names the flag for the configured connector.
func TestPushRefuses(t *testing.T) {
	for _, c := range []struct{ name, from, to, field string }{
		{"no tp_size: D dies", `"tp_size":1,`, "", "tp_size"},
		{"tp_size null: D dies", `"tp_size":1`, `"tp_size":null`, "tp_size"},
		{"no engine: D dies", `"remote_engine_id"`, `"remote_engine"`, "remote_engine_id"},
		{"no request: D dies", `"remote_request_id"`, `"remote_request"`, "remote_request_id"},
		{"no host: D dies", `"remote_host"`, `"host"`, "remote_host"},
		{"no port: D dies", `"remote_port"`, `"port"`, "remote_port"},
		{"pull", `"push"`, `"pull"`, "NIXL pull"},
		{"null", `"push"`, `null`, "NIXL pull"},
		{"before 0.32", `"transfer_mode":"push",`, "", "NIXL pull"},
		{"carry", `"push"`, `"carry"`, "transfer_mode"},
		{"MoRIIO", `"tp_size"`, `"remote_notify_port":1,"tp_size"`, "MoRIIO"},
	} {
		leg, edit, _ := newLeg(t, openai.Completions, completion)
		params := strings.Replace(pushParams, c.from, c.to, 1)
		err := NIXLPush{}.EditDecode(leg, pair, NewReply([]byte(params), start, 100, 32), inTime)
		got := fmt.Sprint(err)
		if bad, is := errors.AsType[*InvalidParams](err); is {
			got = bad.Field
		}
		if f, is := errors.AsType[*Foreign](err); is {
			got = f.Protocol
			const says = `connector.type is nixl-push: start the engines with "kv_connector":"NixlPushConnector"`
			if !strings.Contains(f.Error(), says) {
				t.Errorf("%s: %v, want %s", c.name, f, says)
			}
		}
		if got != c.field || string(edit.Append(nil)) != completion {
			t.Errorf("%s: %v, want one about %s; the body is %s", c.name, err, c.field, edit.Append(nil))
		}
	}
}

// Each connector of the configuration has its traits, and what fits them.
func TestKnownConnectors(t *testing.T) {
	for name := range known {
		traits := Named(name, Ports{}).Traits()
		switch {
		case traits.Engines == "", traits.Order == 0, traits.Late == 0:
			t.Errorf("%s: %+v", name, traits)
		case traits.Late == Strands && !traits.Rescue && !traits.CutLeaks:
			t.Errorf("%s strands decode legs and has no rescue", name)
		}
	}
	if Named("none", Ports{}) != nil {
		t.Error("an unknown name gives a connector")
	}
}
