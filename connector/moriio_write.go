package connector

import (
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// MoRIIOWrite is MoRI-IO in WRITE mode, vLLM's default (vLLM 0.32, moriio/moriio_connector.py,
// moriio_engine.py). Leg 1 tells P the address of D, leg 2 tells D the address of P. D tells P the ids of its
// blocks under the transfer id, P writes them, and tells D. It has run against simulated engines only.
//
// P writes into the engine that leg 1 names, at the block ids of the engine that gets leg 2. If leg 2 goes to
// another engine, P writes over blocks of other requests. So the transfer id contains the address of D, and P
// repeats this id: a leg 2 for another engine is refused.
//
// P forgets a transfer that D does not ask for in time, and never serves its id again. D then waits for ever,
// and never frees its blocks, also after the leg was cut and after P wrote into them.
type MoRIIOWrite struct{ Ports }

// Ports are the ports at which every decode engine listens for prefill engines, on the host of its URL.
type Ports struct{ Handshake, Notify int }

var _ Connector = MoRIIOWrite{}

// Traits returns the traits of WRITE mode.
func (MoRIIOWrite) Traits() Traits {
	return Traits{
		Order: Sequential, Late: Strands, Returnable: true, IDsOnly: true, NamesDecode: true, CutLeaks: true,
		Engines: "MoRIIOConnector", Extra: writeMode,
	}
}

// EditPrefill tells P where D is. P ends if a key is missing, even one that is null. It would read the
// address of D in an id of the client before it reads the params. P drops blocks after a stop.
func (m MoRIIOWrite) EditPrefill(leg *Leg, pair Pair) error {
	host := strings.Trim(pair.Decode.Host, "[]")
	switch {
	case host == "":
		return &InvalidParams{"remote_host", "is not known of " + string(pair.Decode.ID)}
	case local(host) && !local(pair.Prefill.Host):
		return &InvalidParams{"remote_host", "of " + string(pair.Decode.ID) + " is " + host +
			", which is another machine for " + string(pair.Prefill.ID)}
	}
	params := rawjson.AppendString([]byte(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":`),
		m.transfer(&pair))
	params = append(params, `,"remote_engine_id":null,"remote_block_ids":null,"remote_host":`...)
	params = append(rawjson.AppendString(params, host), `,"remote_handshake_port":`...)
	params = append(strconv.AppendInt(params, int64(m.Handshake), 10), `,"remote_notify_port":`...)
	params = append(strconv.AppendInt(params, int64(m.Notify), 10), '}')
	leg.Body.Set(paramsKey, params)
	leg.Body.Set("ignore_eos", []byte("true"))
	for _, key := range []string{"stop", "stop_token_ids", "request_id"} {
		leg.Body.Delete(key)
	}
	leg.identify(pair)
	return nil
}

// EditDecode moves the reply's params into leg 2, and tells D that it leads the request: D would tell P
// nothing if the rank of P is not its own. An id in the body goes, as in READ mode.
func (m MoRIIOWrite) EditDecode(leg *Leg, pair Pair, reply *Reply, use Use) error {
	pair.transfer = m.transfer(&pair)
	if err := (&decodeLeg{moriioWrites, leg, pair, reply, nil}).edit(use); err != nil {
		return err
	}
	leg.Body.Delete("request_id")
	return nil
}

// transfer is the id of the transfer: of this attempt, into this decode engine.
func (m MoRIIOWrite) transfer(pair *Pair) string {
	return pair.AttemptID + " " + pair.Decode.Host + " " + strconv.Itoa(m.Handshake)
}
