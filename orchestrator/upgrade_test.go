package orchestrator

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// The router has no websockets. A request for one gets a whole answer at once, and the connection stays
// usable. A usual request that merely offers an upgrade is answered as usual.
func TestUpgradesAreAnswered(t *testing.T) {
	const upgrade = "Host: front\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	in(t, setup{}, func(w *world) {
		nc, err := w.net.Dial(w.t.Context(), "tcp", "front:80")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		answers := bufio.NewReader(nc)
		body := completion(false).body
		for _, ask := range []struct {
			head, body string
			want       int
		}{
			{"GET /v1/realtime?model=sim", "", http.StatusNotFound},
			{"GET /v1/completions", "", http.StatusMethodNotAllowed},
			{"POST /v1/completions", body, http.StatusOK},
			{"GET /v1/models", "", http.StatusOK},
		} {
			if strings.HasPrefix(ask.head, "POST") || strings.Contains(ask.head, "/v1/") {
				w.asked++
			}
			head := ask.head + " HTTP/1.1\r\n" + upgrade
			if ask.body != "" {
				head += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(ask.body)) + "\r\n"
			}
			if _, err := io.WriteString(nc, head+"\r\n"+ask.body); err != nil {
				t.Fatalf("%s: %v", ask.head, err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", ask.head, err)
			}
			raw, err := io.ReadAll(resp.Body)
			if resp.StatusCode != ask.want || err != nil || len(raw) == 0 {
				t.Errorf("%s: status %d, %q, %v; want %d", ask.head, resp.StatusCode, raw, err, ask.want)
			}
		}
	})
}
