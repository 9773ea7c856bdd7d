package enginesim

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/rawjson"
)

// transferParams reads kv_transfer_params with the presence of each key, and removes prompt_token_ids.
func (p *params) transferParams(s *scanner) {
	if s.null() {
		return
	}
	t := new(core.Transfer)
	s.object(func(key []byte) {
		if string(key) == "prompt_token_ids" && p.at != atCompletions && p.at != atGenerate {
			p.reuseRaw = s.Value()
			return
		}
		transferField(t, string(key), s)
	})
	p.transfer = t
}

// transferField reads one key into t without encoding/json, because a decode leg may have many block ids. The
// fields accept any value: their UnmarshalJSON never fails.
//
// Long: one case per key.
func transferField(t *core.Transfer, key string, s *scanner) {
	start := s.Pos
	value := s.Value()
	if s.Err() != nil {
		s.Pos = start
		return
	}
	switch key {
	case "do_remote_prefill":
		_ = t.DoRemotePrefill.UnmarshalJSON(value)
	case "do_remote_decode":
		_ = t.DoRemoteDecode.UnmarshalJSON(value)
	case "remote_block_ids":
		t.RemoteBlocks = remoteBlocks(value)
	case "remote_engine_id":
		t.EngineID = textField(value)
	case "remote_request_id":
		t.RequestID = textField(value)
	case "transfer_id":
		t.TransferID = textField(value)
	case "remote_bootstrap_addr":
		t.Bootstrap = textField(value)
	case "remote_handshake_port":
		_ = t.Handshake.UnmarshalJSON(value)
	case "remote_notify_port":
		_ = t.Notify.UnmarshalJSON(value)
	case "remote_dp_rank":
		_ = t.DPRank.UnmarshalJSON(value)
	case "remote_dp_size":
		_ = t.DPSize.UnmarshalJSON(value)
	case "remote_dp_size_local":
		_ = t.DPSizeLocal.UnmarshalJSON(value)
	case "remote_host":
		t.Host = textField(value)
	case "remote_port":
		_ = t.Port.UnmarshalJSON(value)
	case "remote_kv_source":
		_ = t.Source.UnmarshalJSON(value)
	case "tp_size":
		t.TPSize = intField(value)
	case "remote_num_tokens":
		t.NumTokens = intField(value)
	case "remote_registration_generation":
		t.Registration = intField(value)
	case "remote_prefill_cached_tokens":
		t.PrefillCached = intField(value)
	}
}

func textField(value []byte) core.Field[string] {
	if value[0] != '"' {
		return core.Field[string]{Present: true, Null: true}
	}
	return core.Has(rawjson.Text(value))
}

func intField(value []byte) core.Field[int] {
	if n, err := strconv.Atoi(string(value)); err == nil {
		return core.Has(n)
	}
	return core.Field[int]{Present: true, Null: true}
}

// remoteBlocks reads lists such as [[1,2,3]] fast, and all other values with UnmarshalJSON.
func remoteBlocks(value []byte) core.Field[core.RemoteBlocks] {
	f := core.Field[core.RemoteBlocks]{Present: true}
	s := scan(value)
	if value[0] == '[' {
		s.array(func() {
			var ids []int
			s.array(func() { ids = append(ids, s.integer(-1)) })
			f.V.Groups = append(f.V.Groups, ids)
		})
		if s.end() == nil {
			return f
		}
	}
	f.V = core.RemoteBlocks{}
	_ = f.UnmarshalJSON(value) // accepts any value
	return f
}
