package connector

import "slices"

// dialect is what the params of P's answers are like. connector.type sets the dialect that Tandem expects.
type dialect struct {
	protocol meaning // the keys that only this protocol writes
	name     string  // transfer_mode; "" if the params have none
	other    string  // transfer_mode of the other mode
	kind     string  // connector.type
	engines  string  // kv_connector
	required []string
	adds     string // members that leg 2 has beside P's own, each before a comma
}

// The required keys are those without which a decode engine hangs, dies, or answers from blocks that were
// never filled.
var (
	pulls = &dialect{ofNIXL, "pull", "push", "nixl", NIXL{}.Traits().Engines, ofPull, ""}

	pushes = &dialect{
		ofNIXL, "push", "pull", "nixl-push", NIXLPush{}.Traits().Engines,
		slices.Concat(ofPull, []string{"tp_size"}), "",
	}

	moriioReads  = &dialect{ofMoRIIO, "", "", "moriio", MoRIIO{}.Traits().Engines, ofMoRI, ""}
	moriioWrites = &dialect{
		ofMoRIIO, "", "", "moriio-write", MoRIIO{}.Traits().Engines, ofMoRI, `"is_request_leader":true,`,
	}
)

var ofMoRI = []string{
	"do_remote_prefill", "remote_block_ids", "remote_engine_id", "remote_host", "remote_handshake_port",
	"remote_notify_port", "remote_dp_rank", "transfer_id",
}

var ofPull = []string{
	"do_remote_prefill", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
	"remote_port",
}

// foreign returns the error for engines that use another protocol.
func (m *dialect) foreign(protocol, key string) *Foreign {
	return &Foreign{Protocol: protocol, Key: key, Type: m.kind, Engines: m.engines}
}
