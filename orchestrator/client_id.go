package orchestrator

import "net/http"

// longestClientID is how many bytes an id of a client may have.
const longestClientID = 128

// clientID returns the X-Request-Id of the client's request. The answer repeats it, and records and logs show
// it. Engines do not get it, because two requests with one id are one request to vLLM. An id that is too
// long, or has other characters than letters, digits and -_.:+=@, is ignored.
func clientID(h http.Header) string {
	given := h["X-Request-Id"]
	if len(given) != 1 || len(given[0]) > longestClientID {
		return ""
	}
	for _, c := range []byte(given[0]) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':', c == '+', c == '=', c == '@':
		default:
			return ""
		}
	}
	return given[0]
}
