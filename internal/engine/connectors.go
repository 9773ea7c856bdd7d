package engine

import (
	"bytes"
	"math/bits"
)

// connectors are the KV connectors that show in /metrics, by the begin of their series. LMCache,
// ExampleConnector, Mooncake before vLLM 0.33, and MooncakeStore before its first operation, show nothing.
// Where there are several, the first of this list counts: the others are beside it in a MultiConnector.
var connectors = [...]struct {
	begin []byte
	name  string
}{
	{[]byte("nixl_"), "nixl"},
	{[]byte("moriio_"), "moriio"},
	{[]byte("mooncake_store_"), "mooncake-store"},
	{[]byte("mooncake_"), "mooncake"}, // the one before begins with it too
	{[]byte("kv_offload_"), "offloading"},
}

// shown are the connectors whose series a page has, a bit each, by their places in connectors.
type shown struct {
	any, counters uint8
	first         int // the place of the connector that the first counter is of
}

// look notes whose series this is, by its name without "vllm:".
func (s *shown) look(name []byte) {
	if c := name[0]; c != 'n' && c != 'm' && c != 'k' {
		return
	}
	for i := range connectors {
		if !bytes.HasPrefix(name, connectors[i].begin) {
			continue
		}
		s.any |= 1 << i
		if bytes.HasSuffix(name, []byte("_total")) {
			if s.counters == 0 {
				s.first = i
			}
			s.counters |= 1 << i
		}
		return
	}
}

func (s *shown) connector() string {
	if s.any == 0 {
		return ""
	}
	return connectors[bits.TrailingZeros8(s.any)].name
}

// firstOf compares counters only: a server with several processes writes other kinds in no order.
func (s *shown) firstOf() string {
	if bits.OnesCount8(s.counters) < 2 {
		return ""
	}
	return connectors[s.first].name
}
