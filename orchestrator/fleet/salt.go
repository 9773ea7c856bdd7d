package fleet

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// A decode engine that may have read another request's blocks has the wrong blocks in its prefix cache,
// under the hashes of the prompt. Every later request that begins with this prompt would get a wrong answer
// (seen on vLLM 0.32). The API to empty the cache exists in vLLM's development mode only. But vLLM hashes a
// request's cache_salt into its first block. So every later request to such an engine is salted with a
// number, the epoch. The engine then finds no block that it cached before. Only a restart of the engine ends
// the salting.

// SaltedForPair returns the body for both engines of a pair, for a request that another program sends;
// prefill is nil if the decode engine works alone. The two engines of a split request must get the same
// salt. So one number holds both epochs: the number is new to an engine whenever the engine's epoch is new.
func SaltedForPair(body []byte, prefill, decode *Endpoint) []byte {
	epoch := uint64(decode.CacheEpoch())
	if prefill != nil {
		epoch |= uint64(prefill.CacheEpoch()) << 32
	}
	if epoch == 0 {
		return body
	}
	return salted(body, epoch)
}

// salted puts the epoch into a JSON body, beside the client's own salt. It returns other bodies unchanged,
// and also bodies with a salt that no engine accepts. If a name appears twice, engines take the last value.
func salted(body []byte, epoch uint64) []byte {
	end := bytes.LastIndexByte(body, '}')
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if end < 0 || len(trimmed) == 0 || trimmed[0] != '{' {
		return body
	}
	own, members := "", 0
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		value := s.Value()
		members++
		if string(rawjson.Name(key)) != "cache_salt" || string(value) == "null" {
			continue
		}
		if own = rawjson.Text(value); value[0] != '"' || own == "" || strings.ContainsRune(own, utf8.RuneError) {
			return body // every engine refuses this body, and the client must get the refusal
		}
	}
	if s.Err() != nil {
		return body
	}
	out := append(make([]byte, 0, len(body)+len(own)+48), body[:end]...)
	if members > 0 {
		out = append(out, ',')
	}
	out = rawjson.AppendString(append(out, `"cache_salt":`...),
		own+"\x1ftandem-era-"+strconv.FormatUint(epoch, 10))
	return append(out, body[end:]...)
}
