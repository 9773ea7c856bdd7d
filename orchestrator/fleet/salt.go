package fleet

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// A decode engine that may have read somebody else's blocks has them in its prefix cache, under the hashes of
// a prompt that they do not belong to: every later request that begins with that prompt would be answered
// wrongly (seen on vLLM 0.32), and the API to empty the cache exists in vLLM's development mode only. But
// vLLM hashes a request's cache_salt into its first block. So whatever goes to such an engine from then on is
// salted with a number of its own, the epoch: nothing that it has cached before is found again. Only its
// restart ends that.

// salted puts the epoch into a JSON body, beside the client's own salt; other bodies stay as they are, and so
// do those with a salt that no engine takes. Of two members of a name engines take the last.
func salted(body []byte, epoch uint32) []byte {
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
			return body // which every engine refuses, as the client shall hear
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
		own+"\x1ftandem-era-"+strconv.FormatUint(uint64(epoch), 10))
	return append(out, body[end:]...)
}
