package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// session is the conversation, or the run of an agent, to which a request belongs, according to its client.
// The zero value is none. No decision depends on a session, because blocks show which engine has the longest
// prefix.
type session struct {
	id    string // for engines only
	label string // part of the hash of id, for people
}

// sessionHeaders are the names under which clients send the id of a session. The first name with an id
// counts. X-Session-Token of llm-d is not in the list, because it names a pod.
var sessionHeaders = [...]string{
	sessionHeader,
	"X-Dynamo-Session-Id",
	"X-Claude-Code-Session-Id",
	"X-Session-Affinity",
	"Session_id", // Codex; net/http writes the name in this form
	"Session-Id", // Codex
	"Thread-Id",  // Codex
}

// sessionHeader is the field that gives engines the id.
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

// isSession reports whether an id has a valid length and only visible ASCII. Other bytes could have another
// meaning for an engine than for this router.
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
