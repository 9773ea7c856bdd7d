package orchestrator

import "net/http"

// longestClientID is how many bytes an id of a client may have.
const longestClientID = 128

// clientID returns the X-Request-Id that a client gave its request: it is echoed, and the request is found by
// it in records and logs. No engine gets it: to vLLM two requests of one id are one. One that is long, or
// holds more than letters, digits and -_.:+=@, is none.
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
