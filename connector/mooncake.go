package connector

import (
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Mooncake is vLLM's MooncakeConnector (vLLM 0.32, mooncake/mooncake_connector.py). Both legs name a
// transfer id. D asks P for the blocks of this id, at the address in leg 2, and P writes them when its
// prefill is done. Either leg may come first.
//
// A transfer id that is used again mixes two prompts, or lets D wait until P's time is over. P drops the
// blocks of a prefill that ends with a stop, so leg 1 never stops. A leg 2 that lacks one of its keys waits
// for ever, or ends D.
type Mooncake struct{}

var _ Connector = Mooncake{}

// Traits returns the traits of Mooncake. A late decode leg waits, since P has forgotten its transfer id.
func (Mooncake) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Fails, Returnable: true, AsksAgain: true, NoParams: true, IDsOnly: true,
		Bootstrap: true, Engines: "MooncakeConnector",
	}
}

// EditPrefill asks for a prefill whose blocks P keeps until D has asked for them.
func (Mooncake) EditPrefill(leg *Leg, pair Pair) error {
	leg.Body.Delete("stop")
	leg.Body.Delete("stop_token_ids")
	leg.Body.Set("ignore_eos", []byte("true"))
	leg.Body.Set(paramsKey, append(transferID(`{"do_remote_decode":true`, pair), '}'))
	leg.identify(pair)
	return nil
}

// EditDecode writes all four keys of leg 2, or none. reply is nil if both legs are sent at once.
func (Mooncake) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	at := pair.Prefill.Facts.KV
	if at.EngineID == "" || at.Bootstrap == "" {
		return &InvalidParams{"remote_engine_id", "is not known of " + string(pair.Prefill.ID)}
	}
	if err := checkIDs(leg.ReuseIDs, pair.PromptTokens); err != nil {
		return err
	}
	params := transferID(`{"do_remote_prefill":true`, pair)
	params = rawjson.AppendString(append(params, `,"remote_engine_id":`...), at.EngineID)
	params = rawjson.AppendString(append(params, `,"remote_bootstrap_addr":`...), at.Bootstrap)
	if leg.ReuseIDs != nil && !use.GiveBack {
		params = slices.Concat(params, []byte(`,"prompt_token_ids":`), leg.ReuseIDs)
	}
	params = append(params, '}')
	if reply != nil {
		used := func([]byte) ([]byte, error) { return params, nil }
		if _, err := reply.take(use, used); err != nil {
			return err
		}
	}
	leg.Body.Set(paramsKey, params)
	leg.Loads = true
	leg.identify(pair)
	return nil
}

// transferID adds the id of the transfer to the beginning of params: the id of the attempt, which no other
// pair of legs has.
func transferID(begin string, pair Pair) []byte {
	return rawjson.AppendString([]byte(begin+`,"transfer_id":`), pair.AttemptID)
}
