package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tandem/internal/enginesim/conformance"
)

// golden is one exchange with a real vLLM 0.32.0: a prefill and a decode replica joined by NIXL.
type golden struct {
	Name, Role string
	Request    struct {
		Method, Path string
		Headers      map[string]string
		Body         json.RawMessage
	}
	Status  *int
	Headers [][2]string
	Body    string
}

func readGolden(t *testing.T) []golden {
	t.Helper()
	data, err := os.ReadFile("testdata/http-vllm-0.32.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	for line := range bytes.Lines(data) {
		var g golden
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

func noLeaks(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t)
	})
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The requests of the capture get answers of the same status, headers, keys in order, value types and event framing.
func TestAnswersLookLikeVLLM(t *testing.T) {
	noLeaks(t)
	o := Options{
		Model: "tiny", ScaleOut: true, ZeroLatency: true, HandshakeTimeout: 50e6, EventsEndpoint: "tcp://127.0.0.1:0", Topic: "kv@p",
		Core: Config{BlockSize: 32, Blocks: 8192, MaxModelLen: 4096},
	}
	servers := map[string]*Server{"prefill": startServer(t, o), "decode": startServer(t, o)}
	handed := make(map[string]handover) // by the capture's remote_request_id
	for _, g := range readGolden(t) {
		t.Run(g.Name, func(t *testing.T) {
			if strings.HasSuffix(g.Name, "after P died") {
				servers["prefill"].Close()
			}
			status, headers, body, err := replayGolden(servers[g.Role], g, handed)
			if g.Status == nil {
				if err == nil {
					t.Fatalf("status %d, want a refused connection", status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if status != *g.Status {
				t.Fatalf("status %d, want %d: %s", status, *g.Status, body)
			}
			if got, want := conformance.HeaderShape(headers), conformance.HeaderShape(g.Headers); got != want {
				t.Errorf("headers\n got %s\nwant %s", got, want)
			}
			if got, want := bodyShape(t, g.Request.Path, body), bodyShape(t, g.Request.Path, g.Body); got != want {
				t.Errorf("body\n got %s\nwant %s\n%s", got, want, body)
			}
			remember(handed, g.Body, body)
		})
	}
}

// handover is what a prefill leg here gave where the capture's gave something else.
type handover struct {
	params map[string]any
	ids    any
}

func remember(handed map[string]handover, captured, ours string) {
	type answer struct {
		Params map[string]any `json:"kv_transfer_params"`
		IDs    any            `json:"prompt_token_ids"`
	}
	var a, b answer
	json.Unmarshal([]byte(captured), &a)
	json.Unmarshal([]byte(ours), &b)
	if id, ok := a.Params["remote_request_id"].(string); ok && b.Params != nil {
		handed[id] = handover{b.Params, b.IDs}
	}
}

// replayGolden sends the captured request with our own transfer params in the place of the captured ones.
func replayGolden(s *Server, g golden, handed map[string]handover) (int, [][2]string, string, error) {
	body := []byte(g.Request.Body)
	var m map[string]any
	if json.Unmarshal(body, &m) == nil && m != nil {
		if params, ok := m["kv_transfer_params"].(map[string]any); ok {
			id, _ := params["remote_request_id"].(string)
			if h, ok := handed[id]; ok {
				if h.params["prompt_token_ids"] = h.ids; h.ids == nil {
					delete(h.params, "prompt_token_ids")
				}
				m["kv_transfer_params"] = h.params
				body, _ = json.Marshal(m)
			}
		}
	}
	if string(body) == "null" {
		body = nil
	}
	return rawExchange(s, g.Request.Method, g.Request.Path, g.Request.Headers, body)
}

// bodyShape is conformance.BodyShape of a body that is well formed.
func bodyShape(t *testing.T, path, body string) string {
	t.Helper()
	shape, err := conformance.BodyShape(path, body)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// rawExchange sends one request on a connection of its own and gives the header lines as they came, in order and case, and the body without its chunks.
func rawExchange(s *Server, method, path string, headers map[string]string, body []byte) (int, [][2]string, string, error) {
	c, err := dialServer(s)
	if err != nil {
		return 0, nil, "", err
	}
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Length: %d\r\n", method, path, len(body))
	for k, v := range headers {
		fmt.Fprintf(c, "%s: %s\r\n", k, v)
	}
	fmt.Fprintf(c, "\r\n%s", body)
	all, err := io.ReadAll(c)
	if err != nil || len(all) == 0 {
		return 0, nil, "", fmt.Errorf("no answer: %w", io.ErrUnexpectedEOF)
	}
	return parseAnswer(all)
}
