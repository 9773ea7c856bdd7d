package connector

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Source is an engine from which the engine that computes the prompt pulls leading blocks, over vLLM's P2P
// tier (vLLM 0.32, v1/kv_offload/tiering/p2p). The zero Source is none.
//
// The engine asks the source for each block by its hash, and computes what the source does not have.
// Blocks cannot get mixed up. But no time limit ends the question: a source whose core stands still lets the
// prompt wait.
type Source struct {
	Host string
	Port int
}

// member returns the member of a leg's transfer params that names the source, "" for none. id is unique to
// the attempt: the source keeps the state of the question under it.
func (s Source) member(id string) []byte {
	if s == (Source{}) {
		return nil
	}
	b := rawjson.AppendString([]byte(`,"remote_kv_source":{"kv_request_id":`), id)
	b = rawjson.AppendString(append(b, `,"remote_host":`...), s.Host)
	b = strconv.AppendInt(append(b, `,"remote_port":`...), int64(s.Port), 10)
	return append(b, '}')
}
