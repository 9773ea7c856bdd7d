package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Fault is one misbehaviour, passed to [Server.Fault], or as JSON to POST /fault of the control listener. In
// JSON, For is a duration such as "1.5s".
//
//	kind              what happens
//	fail              the next Count requests (default 1) of Leg and Path get Status (default 500) and do not
//	                  reach the engine; a GET matches by its Path only
//	stall             the next Count requests of Leg and Path get no answer until the client disconnects
//	cut_stream        the next Count streams of Leg end without a terminator after After events (default 1)
//	stall_stream      the next Count streams of Leg stop after After events, but the connection stays open
//	fail_stream       the next Count streams of Leg end with an error event of code 500 after After events, as
//	                  after the core's death
//	stray             the next Count requests of Path that are not the first on their connection get the
//	                  previous answer again, followed by their own
//	null_params       the next Count answers of a prefill leg have kv_transfer_params null
//	miscount          the next Count answers of a Leg count one prompt token too many
//	cut_path          no message from this engine reaches the peer From: loads, notifications and heartbeats
//	                  fail after For (default: the handshake time-out)
//	hold_path         messages from this engine to the peer From wait for mend_path, and do not fail; then they
//	                  are sent, even if the peer has reused its blocks
//	wrong_load        loads from the peer From succeed with garbage: 200, wrong text, a poisoned prefix cache
//	no_load           the engine loads nothing and sends the peer nothing, as without a connector
//	mend_path         ends cut_path, hold_path and wrong_load of From; without From, those of all peers, and
//	                  no_load
//	freeze            the whole server stops for For, engine and side channel included, as under SIGSTOP
//	freeze_core       the engine and its side channel stop for For; the API process still answers /metrics
//	slow_metrics      GET /metrics takes For longer
//	slow              steps take Factor times as long; Factor 1 ends the fault
//	refuse            connections are refused for For; 0: until accept
//	accept            ends refuse, and restarts the server after die
//	die               the engine core dies: open requests get a 500, then the server is gone
//	restart           a new process: requests are cut, the engine id changes, the cache is empty, events start
//	                  at 0; connections are refused for For
//	drop_events       the next Count batches are not sent live (a subscriber can replay them)
//	duplicate_events  the next Count batches are published twice
//	delay_events      batches are sent For late; 0 ends the fault
//	pause_events      nothing is published until resume_events, or for For
//	resume_events     ends pause_events
//	restart_events    only the publisher restarts: sequence from 0, no history
//	lease             leases of prompts that finish from now on last For
//	swap_adapter      from now on, the LoRA adapter Body is loaded from Path: same name, other weights
//	no_orca           answers have no endpoint-load-metrics header
//	clear             ends all faults above that can end
type Fault struct {
	Kind string `json:"kind"`
	Leg  string `json:"leg,omitzero"`  // prefill, decode, plain, or "" for any
	Path string `json:"path,omitzero"` // "" for any
	Body string `json:"body,omitzero"` // of fail: a text that the request's body must contain; "" for any
	// The peer: engine id, URL, side channel, or a host for all engines on it; "" for all peers.
	From   string        `json:"from,omitzero"`
	Count  int           `json:"count,omitzero"`  // -1: no limit
	Status int           `json:"status,omitzero"` // of fail
	After  int           `json:"after,omitzero"`  // events
	Factor float64       `json:"factor,omitzero"`
	For    time.Duration `json:"for,omitzero"`
}

// UnmarshalJSON accepts For as "250ms" or in nanoseconds.
func (f *Fault) UnmarshalJSON(b []byte) error {
	type plain Fault
	aux := struct {
		*plain
		For json.RawMessage `json:"for"`
	}{plain: (*plain)(f)}
	if err := json.Unmarshal(b, &aux); err != nil {
		return err
	}
	if len(aux.For) == 0 {
		return nil
	}
	var text string
	if json.Unmarshal(aux.For, &text) != nil {
		return json.Unmarshal(aux.For, &f.For)
	}
	d, err := time.ParseDuration(text)
	f.For = d
	return err
}

// ParseFault reads a flag: "kind", or "kind,key=value,…" with the keys of the JSON form.
func ParseFault(text string) (Fault, error) {
	kind, rest, _ := strings.Cut(text, ",")
	f := Fault{Kind: kind}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		if !ok {
			return f, fmt.Errorf("fault %q: %q is not key=value", text, pair)
		}
		if err := f.set(key, value); err != nil {
			return f, fmt.Errorf("fault %q: %s: %w", text, key, err)
		}
	}
	return f, nil
}

func (f *Fault) set(key, value string) error {
	var err error
	switch key {
	case "leg":
		f.Leg = value
	case "path":
		f.Path = value
	case "from":
		f.From = value
	case "count":
		_, err = fmt.Sscan(value, &f.Count)
	case "status":
		_, err = fmt.Sscan(value, &f.Status)
	case "after":
		_, err = fmt.Sscan(value, &f.After)
	case "factor":
		_, err = fmt.Sscan(value, &f.Factor)
	case "body":
		f.Body = value
	case "for":
		f.For, err = time.ParseDuration(value)
	default:
		err = errors.New("no such key")
	}
	return err
}
