package connector

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// ErrForeign matches every *Foreign.
var ErrForeign = fmt.Errorf("transfer params of another protocol: %w", ErrInvalidParams)

// Foreign is the error for a prefill engine that uses another KV transfer protocol than the configured one.
// At best the decode engine ignores its params. At worst it answers from blocks that were never filled.
type Foreign struct {
	Protocol string // its name for operators
	Key      string // the key of the params that reveals the protocol
	Type     string // the configured connector.type
	Engines  string // the kv_connector of engines for Type
}

func (e *Foreign) Error() string {
	return fmt.Sprintf(`transfer params: %s is of %s, and connector.type is %s: start the engines with `+
		`"kv_connector":"%s"`, e.Key, e.Protocol, e.Type, e.Engines)
}

// Is makes every Foreign match ErrForeign and ErrInvalidParams.
func (e *Foreign) Is(target error) bool { return target == ErrForeign || target == ErrInvalidParams }

// meaning is the meaning of one key of transfer params.
type meaning uint8

const (
	strange  meaning = iota // in no list: passed on unchanged, because a newer version may have added it
	shared                  // written by NIXL and by MoRI-IO
	ofNIXL                  // written by vLLM's NIXL connectors only
	ofMoRIIO                // written by vLLM's MoRI-IO connector only, or with others that are no dialect here
	beside                  // written by another connector in a MultiConnector; passed on
	foreign                 // written by another protocol
)

// judged lists all keys that vLLM's connectors are known to write into a prefill answer's params.
var judged = []struct {
	meaning  meaning
	protocol string
	keys     []string
}{
	{shared, "NIXL or MoRIIO", []string{
		"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_host", "tp_size",
		"remote_prefill_cached_tokens",
	}},
	{ofNIXL, "NIXL", []string{
		"remote_request_id", "remote_port", "dcp_size", "pp_size", "remote_num_tokens",
		"remote_blocks_expiry_time", "transfer_mode", "remote_registration_generation",
	}},
	{beside, "LMCache", []string{"num_lmcache_extra_cached_tokens", "cached_token_stats"}},
	{ofMoRIIO, "MoRIIO", []string{
		"remote_handshake_port", "remote_notify_port", "remote_dp_rank", "remote_dp_rank_override",
		"remote_dp_size",
		"remote_dp_size_local", "remote_tp_size",
	}},
	{foreign, "Mooncake", []string{"remote_bootstrap_addr"}},
	{ofMoRIIO, "Mooncake, MoRIIO or NIXL push", []string{"transfer_id"}},
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

// judgements indexes judged, because the params of every request are looked up.
var judgements = func() map[string]judgement {
	all := map[string]judgement{}
	for _, j := range judged {
		for _, key := range j.keys {
			all[key] = judgement{key, j.meaning, j.protocol}
		}
	}
	return all
}()

// judge returns the meaning of a key, and the protocol that owns it. raw is a JSON string. A known name needs
// no allocation.
func judge(raw []byte) judgement {
	if known, ok := judgements[string(rawjson.Name(raw))]; ok {
		return known
	}
	return judgement{key: rawjson.Text(raw)}
}

// foreignKey returns an error for the first key, in order, that only another protocol writes. MoRIIO's own
// keys take precedence over transfer_id, which several protocols share.
func (m *dialect) foreignKey(keys []judgement) error {
	var found *Foreign
	for _, k := range keys {
		other := k.meaning == foreign || (k.meaning == ofNIXL || k.meaning == ofMoRIIO) && k.meaning != m.protocol
		if other && (found == nil || found.Key == "transfer_id") {
			found = m.foreign(k.protocol, k.key)
		}
	}
	if found == nil {
		return nil
	}
	return found
}

// Strange returns the keys of params that no known connector writes; nil if params are not an object.
func Strange(params []byte) []string {
	var all []string
	p := answerParams{mode: pulls}
	_ = p.readAll(params) // the keys before an error count, too
	for _, k := range p.at.keys {
		if k.meaning == strange {
			all = append(all, k.key)
		}
	}
	return all
}
