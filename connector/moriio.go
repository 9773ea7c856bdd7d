package connector

import "github.com/tandem-router/tandem/internal/rawjson"

// MoRIIO is the connector of vLLM on AMD's GPUs, in READ mode: P answers with the location of the blocks, and
// D reads them there (vLLM 0.32, moriio/moriio_connector.py). It has run against simulated engines only.
//
// D takes every prompt for loaded, up to its last token, whether or not the request has params. So D may get
// no request but a decode leg, and a decode leg must name an engine and blocks.
type MoRIIO struct{}

var _ Connector = MoRIIO{}

// Traits returns the traits of READ mode.
func (MoRIIO) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Corrupts, Returnable: true, NoPlain: true, Engines: "MoRIIOConnector",
		Extra: readMode,
	}
}

// EditPrefill asks P to keep the blocks under the attempt's id. P drops blocks after a stop, so none may end
// the leg.
func (MoRIIO) EditPrefill(leg *Leg, pair Pair) error {
	params := rawjson.AppendString([]byte(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":`),
		pair.AttemptID)
	leg.Body.Set(paramsKey, append(params, '}'))
	leg.Body.Set("ignore_eos", []byte("true"))
	leg.identify(pair)
	return nil
}

// EditDecode moves the reply's params into leg 2. An id in the body goes: D would look in it for P's address,
// before it looks in the params, and on /v1/responses D prefers it to X-Request-Id. So a client could end D,
// or let it read from any host.
func (MoRIIO) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	pair.transfer = pair.AttemptID
	if err := (&decodeLeg{moriioReads, leg, pair, reply, nil}).edit(use); err != nil {
		return err
	}
	leg.Body.Delete("request_id")
	return nil
}

// The members of vLLM's flag for each mode. defer_timeout is how long P waits for D.
const (
	readMode  = `,"kv_connector_extra_config":{"read_mode":true,"http_port":8000}`
	writeMode = `,"kv_connector_extra_config":{"defer_timeout":150,"http_port":8000}`
)
