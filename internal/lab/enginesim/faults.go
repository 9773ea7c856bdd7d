package enginesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Fault is one misbehaviour, given to [Server.Fault] or as JSON to POST /fault of the control listener. For
// is a duration as "1.5s" there.
//
//	kind              what happens
//	fail              the next Count requests (default 1) of Leg and Path are answered with Status (default
//	                  500) without reaching the engine; a GET by its Path only
//	stall             the next Count requests of Leg and Path get no answer until the client leaves
//	cut_stream        the next Count streams of Leg end without a terminator after After events (default 1)
//	stall_stream      the same, but the connection stays open and silent
//	fail_stream       the next Count streams of Leg end with an error event of code 500 after After events, as
//	                  when the core dies
//	stray             the next Count requests of Path that are not the first on their connection get the answer
//	                  before them once more, and then their own
//	null_params       the next Count answers of a prefill leg have kv_transfer_params null
//	miscount          the next Count answers of a Leg count a prompt token more than there are
//	cut_path          nothing that this engine asks of the peer From arrives: loads, notifications and
//	                  heartbeats fail after For (default: the handshake time-out)
//	hold_path         the same, but nothing fails: all traffic stands still until mend_path, and goes on then,
//	                  whatever the peer has done with its blocks meanwhile
//	wrong_load        loads from the peer From end well and bring garbage: 200, wrong text, a poisoned prefix
//	                  cache
//	no_load           the engine loads nothing and tells the peer nothing, as without a connector
//	mend_path         ends cut_path, hold_path and wrong_load of From; without From every peer, and no_load
//	freeze            nothing answers for For, engine and side channel included, as under SIGSTOP
//	freeze_core       the same for the engine and its side channel alone: the API process goes on to answer
//	                  /metrics
//	slow_metrics      GET /metrics takes For longer
//	slow              steps take Factor times as long; 1 ends it
//	refuse            connections are refused for For; 0 until accept
//	accept            ends refuse and revives after die
//	die               the engine core dies: open requests get a 500, then the server is gone
//	restart           a new process: requests are cut, another engine id, an empty cache, events from 0; after
//	                  For of refusing
//	drop_events       the next Count batches miss their live send (they can be replayed)
//	duplicate_events  the next Count batches are published twice
//	delay_events      batches go out For late; 0 ends it
//	pause_events      nothing is published until resume_events, or for For
//	resume_events
//	restart_events    the publisher alone restarts: sequence from 0, no history
//	lease             leases of prompts finished from now on last For
//	swap_adapter      the LoRA adapter Body is loaded from Path from now on: the same name, other weights
//	no_orca           no endpoint-load-metrics any more
//	clear             ends all of the above that can end
type Fault struct {
	Kind string `json:"kind"`
	Leg  string `json:"leg,omitzero"`  // prefill, decode, plain, or "" for any
	Path string `json:"path,omitzero"` // "" for any
	Body string `json:"body,omitzero"` // of fail: what the request's body must have in it; "" for any
	// The peer: engine id, URL, side channel, or a host for all engines there; "" for all.
	From   string        `json:"from,omitzero"`
	Count  int           `json:"count,omitzero"`  // -1 for ever
	Status int           `json:"status,omitzero"` // of fail
	After  int           `json:"after,omitzero"`  // events
	Factor float64       `json:"factor,omitzero"`
	For    time.Duration `json:"for,omitzero"`
}

// UnmarshalJSON reads For as "250ms" or as nanoseconds.
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

// ParseFault reads the form of a flag: "kind", or "kind,key=value,…" with the keys of the JSON form.
func ParseFault(text string) (Fault, error) {
	kind, rest, _ := strings.Cut(text, ",")
	f := Fault{Kind: kind}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		if !ok {
			return f, fmt.Errorf("fault %q: %q is no key=value", text, pair)
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
