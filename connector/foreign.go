package connector

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// ErrForeign is what every *Foreign is.
var ErrForeign = fmt.Errorf("transfer params of another protocol: %w", ErrInvalidParams)

// Foreign says that a prefill engine speaks another KV-transfer protocol than the configured one. At best
// the decode engine ignores its params; at worst it answers from blocks that were never filled.
type Foreign struct {
	Protocol string // as operators know it
	Key      string // the key of the params that shows it
	Type     string // connector.type, as configured
	Engines  string // the kv_connector that its engines have
}

func (e *Foreign) Error() string {
	return fmt.Sprintf(`transfer params: %s is of %s, and connector.type is %s: start the engines with `+
		`"kv_connector":"%s"`, e.Key, e.Protocol, e.Type, e.Engines)
}

// Is makes every Foreign an ErrForeign, and so an ErrInvalidParams.
func (e *Foreign) Is(target error) bool { return target == ErrForeign || target == ErrInvalidParams }

// meaning is the judgement of one key of transfer params.
type meaning uint8

const (
	strange meaning = iota // in no list: passed on as it is, since a newer NIXL may have added it
	ofNIXL                 // vLLM's NIXL connectors say it
	beside                 // of another connector beside NIXL in a MultiConnector; passed on
	foreign                // of a protocol that is not NIXL
)

// judged are all keys that vLLM's connectors are known to write into the params of a prefill's answer.
var judged = []struct {
	meaning  meaning
	protocol string
	keys     []string
}{
	{ofNIXL, "NIXL", []string{
		"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id",
		"remote_host",
		"remote_port", "tp_size", "dcp_size", "pp_size", "remote_num_tokens", "remote_blocks_expiry_time",
		"transfer_mode",
		"remote_prefill_cached_tokens", "remote_registration_generation",
	}},
	{beside, "LMCache", []string{"num_lmcache_extra_cached_tokens", "cached_token_stats"}},
	{foreign, "MoRIIO", []string{
		"remote_handshake_port", "remote_notify_port", "remote_dp_rank", "remote_dp_rank_override",
		"remote_dp_size",
		"remote_dp_size_local", "remote_tp_size",
	}},
	{foreign, "Mooncake", []string{"remote_bootstrap_addr"}},
	{foreign, "Mooncake, MoRIIO or NIXL push", []string{"transfer_id"}},
	{foreign, "LMCache's prefill-decode mode", []string{"disagg_spec", "first_tok"}},
	{
		foreign, "the offloading connector's P2P tier",
		[]string{"remote_decoder", "remote_prefiller", "remote_kv_source"},
	},
}

// judgement is the known meaning of one key.
type judgement struct {
	key      string
	meaning  meaning
	protocol string
}

// judgements has all judged keys, to look up the params of every request.
var judgements = func() map[string]judgement {
	all := map[string]judgement{}
	for _, j := range judged {
		for _, key := range j.keys {
			all[key] = judgement{key, j.meaning, j.protocol}
		}
	}
	return all
}()

// judge tells what a key means, and which connector owns it. raw is a JSON string; a known name costs no
// memory.
func judge(raw []byte) judgement {
	if known, ok := judgements[string(rawjson.Name(raw))]; ok {
		return known
	}
	return judgement{key: rawjson.Text(raw)}
}

// foreignKey returns the first of the keys, in their order, that only another protocol has. MoRIIO's own keys
// tell more than its shared keys.
func (m *nixlMode) foreignKey(keys []judgement) error {
	var found *Foreign
	for _, k := range keys {
		if k.meaning == foreign && (found == nil || found.Key == "transfer_id") {
			found = m.foreign(k.protocol, k.key)
		}
	}
	if found == nil {
		return nil
	}
	return found
}

// Strange returns the keys of params that no known connector writes; nil where params are no object.
func Strange(params []byte) []string {
	var all []string
	p := nixlParams{mode: pulls}
	_ = p.readAll(params) // the keys before an error count, too
	for _, k := range p.at.keys {
		if k.meaning == strange {
			all = append(all, k.key)
		}
	}
	return all
}
