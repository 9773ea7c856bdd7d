package connector

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
)

// edited puts params into a decode leg and returns the error.
func edited(t *testing.T, n NIXL, params string, prompt int, use Use) error {
	t.Helper()
	leg, edit, _ := newLeg(t, openai.Completions, completion)
	p := pair
	p.PromptTokens = prompt
	reply := NewReply([]byte(params), start, prompt, 32)
	err := n.EditDecode(leg, p, reply, use)
	if refused := string(edit.Append(nil)) == completion; refused != (err != nil) || isTaken(reply) == refused {
		t.Errorf("error %v, body untouched %v, taken %v", err, refused, isTaken(reply))
	}
	return err
}

// Params of another protocol are refused with the protocol's name, even if they have more mistakes. They
// are never given back, because that may crash their decode engine.
func TestForeignProtocols(t *testing.T) {
	add := func(members string) string { return `{` + members + `,` + realParams[1:] }
	const moriio = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2,3,4],` +
		`"remote_engine_id":"e","remote_host":"10.0.0.7","remote_handshake_port":6301,"remote_notify_port":61005,` +
		`"remote_dp_rank":0,"remote_dp_size":1,"tp_size":1,"transfer_id":"tx-1"}`
	push := strings.Replace(realParams, `"pull"`, `"push"`, 1)
	for _, c := range []struct{ name, params, protocol, key string }{
		{"push", push, "NIXL push", "transfer_mode"},
		{
			"push as it comes", strings.Replace(push, `"remote_blocks_expiry_time":null,`, "", 1), "NIXL push",
			"transfer_mode",
		},
		{"MoRIIO", moriio, "MoRIIO", "remote_handshake_port"},
		{
			"MoRIIO with NIXL's keys", add(`"transfer_id":"x","remote_notify_port":1`), "MoRIIO", "remote_notify_port",
		},
		{"Mooncake", add(`"remote_bootstrap_addr":"http://p:8998"`), "Mooncake", "remote_bootstrap_addr"},
		{"a transfer id alone", add(`"transfer_id":"x"`), "Mooncake, MoRIIO or NIXL push", "transfer_id"},
		{"LMCache", `{"first_tok":17}`, "LMCache's prefill-decode mode", "first_tok"},
		{"the P2P tier", `{"remote_kv_source":{}}`, "the offloading connector's P2P tier", "remote_kv_source"},
	} {
		for _, giveBack := range []bool{false, true} {
			use := inTime
			use.GiveBack = giveBack
			err := edited(t, NIXL{}, c.params, 100, use)
			f, ok := errors.AsType[*Foreign](err)
			known := errors.Is(err, ErrForeign) && errors.Is(err, ErrInvalidParams)
			if !ok || !known || f.Protocol != c.protocol || f.Key != c.key ||
				!strings.Contains(err.Error(), `connector.type is nixl: start the engines with `+
					`"kv_connector":"NixlConnector"`) {
				t.Errorf("%s, give back %v: %v, want %s because of %s", c.name, giveBack, err, c.protocol, c.key)
			}
		}
	}
}

// Keys that are known from newer versions of NIXL, or from connectors beside it, are accepted. Strange
// lists only unknown keys.
func TestStrangeKeys(t *testing.T) {
	params := `{"first_token_ids":[5],"num_lmcache_extra_cached_tokens":3,"x":1,` + realParams[1:]
	if err := edited(t, NIXL{}, params, 100, inTime); err != nil {
		t.Error(err)
	}
	if got := Strange([]byte(params)); !slices.Equal(got, []string{"first_token_ids", "x"}) {
		t.Errorf("strange: %q", got)
	}
	newer := `{"remote_registration_generation":2,` + realParams[1:]
	for _, none := range []string{realParams, newer, "null", ""} {
		if got := Strange([]byte(none)); got != nil {
			t.Errorf("strange in %s: %q", none, got)
		}
	}
}
