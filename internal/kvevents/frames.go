package kvevents

import (
	"encoding/binary"
	"math"
	"time"
)

// Frames on the wire, one row a message; see vLLM's distributed/kv_events.py.
//
//	PUB      topic | seq | payload
//	DEALER   ""    | seq | payload                 replay, vLLM before 0.26 and SGLang
//	DEALER   ""    | topic | seq | payload         replay, vLLM 0.26 and later
//	DEALER   ""    | ("") | END | ""               end of a replay
//	request  ""    | seq to begin with
//
// seq is 8 bytes, big-endian; END is all ones.
const endOfReplay = math.MaxUint64

// message is one batch as it came, not decoded yet.
type message struct {
	seq      uint64
	payload  []byte
	received time.Time // of a live batch, by our clock; zero for a batch of a replay
}

func readLive(frames [][]byte) (m message, ok bool) {
	if len(frames) != 3 {
		return message{}, false
	}
	m, ok = readTail(frames)
	return m, ok && m.seq != endOfReplay
}

func readReply(frames [][]byte) (m message, end, ok bool) {
	if len(frames) != 3 && len(frames) != 4 {
		return message{}, false, false
	}
	m, ok = readTail(frames)
	return m, ok && m.seq == endOfReplay, ok
}

// readTail reads the two last frames, which are the same in every form.
func readTail(frames [][]byte) (message, bool) {
	n := len(frames)
	seq := frames[n-2]
	if len(seq) != 8 {
		return message{}, false
	}
	return message{seq: binary.BigEndian.Uint64(seq), payload: frames[n-1]}, true
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
