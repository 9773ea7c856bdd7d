package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// session is the conversation, or the run of an agent, that a request belongs to, as its client says. The
// zero value is none. No decision depends on a session: blocks tell which engine holds the longest prefix.
type session struct {
	id    string // for engines only
	label string // a part of the hash of id, for people
}

// sessionHeaders are the names under which clients send the id of a session. The first name that holds an id
// counts. X-Session-Token of llm-d is not in the list, because it names a pod.
var sessionHeaders = [...]string{
	sessionHeader,
	"X-Dynamo-Session-Id",
	"X-Claude-Code-Session-Id",
	"X-Session-Affinity",
	"Session_id", // Codex; net/http writes the names of header fields so
	"Session-Id", // Codex
	"Thread-Id",  // Codex
}

// sessionHeader is the name under which engines get the id.
const sessionHeader = "X-Session-Id"

// longestSession is how many bytes the id of a session may have.
const longestSession = 256

// sessionOf returns the session that the header of a request names.
func sessionOf(h http.Header) session {
	for _, name := range sessionHeaders {
		if given := h[name]; len(given) == 1 && isSession(given[0]) {
			sum := sha256.Sum256([]byte("tandem session " + given[0]))
			return session{given[0], hex.EncodeToString(sum[:8])}
		}
	}
	return session{}
}

// isSession reports whether an id has a fair length and holds visible ASCII only. Other bytes could mean
// something else to an engine than to this router.
func isSession(id string) bool {
	if id == "" || len(id) > longestSession {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
