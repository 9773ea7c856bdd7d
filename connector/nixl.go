package connector

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// paramsKey is the member with vLLM's transfer params, in requests and answers.
const paramsKey = "kv_transfer_params"

// prefillParams asks P to keep the blocks. P reads only do_remote_decode. The other keys must be null, or P
// waits for a transfer that never happens. The bytes must not be changed.
var prefillParams = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,` +
	`"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

// NIXL is vLLM's pull connector: P answers with the location of the blocks, and D reads them there.
type NIXL struct {
	Withheld *Withheld // learned from the engines' answers; nil remembers nothing
}

var _ Connector = NIXL{}

// Traits returns the traits of pull.
func (NIXL) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Corrupts, Returnable: true, Pulls: true, Engines: "NixlConnector", Series: "nixl",
	}
}

// EditPrefill asks for a prefill, and asks P to keep the blocks.
func (NIXL) EditPrefill(leg *Leg, pair Pair) error {
	askNIXL(leg, pair)
	return nil
}

// EditDecode moves the reply's params into leg 2.
func (n NIXL) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	return (&decodeLeg{pulls, leg, pair, reply, n.Withheld}).edit(use)
}

// askNIXL writes leg 1. A chat also has the ids of its prompt.
func askNIXL(leg *Leg, pair Pair) {
	params := prefillParams
	if leg.ReuseIDs != nil {
		params = slices.Concat([]byte(`{"prompt_token_ids":`), leg.ReuseIDs, []byte(","), prefillParams[1:])
	}
	if source := pair.Source.member(pair.AttemptID); source != nil {
		params = slices.Concat(params[:len(params)-1], source, []byte("}"))
	}
	leg.Body.Set(paramsKey, params)
	leg.identify(pair)
}

// Whole is what a leg without a transfer has in its transfer params. The zero Whole is nothing.
type Whole struct {
	IDs       []byte // of a chat, as a JSON array: the engine begins with them instead of the messages
	Source    Source
	AttemptID string // if there is a Source
}

// Edit writes w into a leg. An engine that takes these params with a transfer takes them without one, too.
func (w Whole) Edit(body Body) {
	var params []byte
	if w.IDs != nil {
		params = append(append(params, `,"prompt_token_ids":`...), w.IDs...)
	}
	params = append(params, w.Source.member(w.AttemptID)...)
	if len(params) == 0 {
		return
	}
	params[0] = '{'
	body.Set(paramsKey, append(params, '}'))
}

// identify sets the leg's id, so that the logs of both engines contain the same id.
func (l *Leg) identify(pair Pair) {
	if id := cmp.Or(l.RequestID, pair.AttemptID); l.SetHeader != nil && id != "" {
		l.SetHeader("X-Request-Id", id)
	}
}

// decodeLeg is leg 2 with params of P's answer.
type decodeLeg struct {
	mode     *dialect
	leg      *Leg
	pair     Pair
	reply    *Reply
	withheld *Withheld
}

// edit moves the reply's params into leg 2, after it has refused all params that end or corrupt a decode
// engine. Refused params stay in the reply.
func (d *decodeLeg) edit(use Use) error {
	if d.reply == nil {
		return &InvalidParams{paramsKey, "are missing"}
	}
	params, err := d.reply.take(use, func(raw []byte) ([]byte, error) { return d.checked(raw, use) })
	if err != nil {
		return err
	}
	d.leg.Body.Set(paramsKey, params)
	d.leg.Loads = true
	d.leg.identify(d.pair)
	return nil
}

// checked returns the params for leg 2: raw with P's host, if needed, and the ids to reuse.
func (d *decodeLeg) checked(raw []byte, use Use) ([]byte, error) {
	p := answerParams{mode: d.mode}
	reply, pair := d.reply, &d.pair
	if err := p.readAll(raw); err != nil {
		return nil, err
	}
	if use.GiveBack {
		// Complete params are enough: no scheduler will read them.
		return p.rewrite(hostFor(p.host, pair.Prefill.Host), nil), nil
	}
	want := expectation{
		prompt: reply.promptTokens, decode: pair.PromptTokens,
		blockSize: cmp.Or(reply.blockSize, pair.Prefill.Facts.BlockSize),
		blocks:    pair.Prefill.Facts.Blocks, withheld: d.withheld, transfer: pair.transfer,
	}
	if err := p.check(want); err != nil {
		return nil, err
	}
	if err := checkIDs(d.leg.ReuseIDs, cmp.Or(reply.promptTokens, pair.PromptTokens)); err != nil {
		return nil, err
	}
	reply.groups = len(p.blocks.groups) // take holds the lock
	return p.rewrite(hostFor(p.host, pair.Prefill.Host), d.leg.ReuseIDs), nil
}

// checkIDs refuses ids if their number differs from that of the prefilled tokens: D would end or answer
// wrongly.
func checkIDs(ids []byte, prompt int) error {
	if ids == nil {
		return nil
	}
	s := rawjson.Scanner{Data: ids}
	n := len(s.IDs(nil))
	s.End()
	switch {
	case s.Err() != nil || n == 0:
		return &InvalidParams{"prompt_token_ids", "are not a list of token ids"}
	case prompt > 0 && n != prompt:
		return &InvalidParams{"prompt_token_ids", "are not as many as were prefilled"}
	}
	return nil
}

// hostFor returns the host that replaces remote in leg 2, or "" to keep remote. By default, engines on one
// machine report "localhost", which another machine cannot dial. Any other host was set on purpose.
func hostFor(remote, prefill string) string {
	prefill = strings.Trim(prefill, "[]")
	if prefill == "" || !local(remote) || local(prefill) {
		return ""
	}
	return prefill
}

func local(host string) bool {
	host = strings.Trim(host, "[]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified())
}
