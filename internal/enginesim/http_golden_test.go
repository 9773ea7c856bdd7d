package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
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
			if got, want := headerShape(headers), headerShape(g.Headers); got != want {
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

// headerShape names headers in order, with the values that do not vary.
func headerShape(headers [][2]string) string {
	var b strings.Builder
	for _, h := range headers {
		switch name, value := h[0], h[1]; name {
		case "content-length", "x-request-id":
			fmt.Fprintf(&b, "%s\n", name)
		case "endpoint-load-metrics":
			fmt.Fprintf(&b, "%s: %s\n", name, digitsGone(value))
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}

func digitsGone(s string) string {
	var b strings.Builder
	last := ' '
	for _, r := range s {
		if r >= '0' && r <= '9' || r == 'e' && last == '0' || r == '-' && last == '0' {
			r = '0'
		}
		if r != '0' || last != '0' {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// bodyShape is the body with its values replaced by their types; runs of equal events count once.
func bodyShape(t *testing.T, path, body string) string {
	t.Helper()
	switch {
	case path == "/metrics":
		return metricNames(body)
	case strings.HasPrefix(body, "data: ") || strings.HasPrefix(body, "event: "):
		var events []string
		for e := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
			head, data, _ := strings.Cut(e, "data: ")
			if data != "[DONE]" {
				data = jsonShape(t, data)
			}
			events = append(events, head+"data: "+data)
		}
		return strings.Join(slices.Compact(events), "\n") + fmt.Sprint(" ends ", strings.HasSuffix(body, "\n\n"))
	case body == "":
		return ""
	}
	return jsonShape(t, body)
}

// metricNames are the series that a router reads and that must not be missing here.
func metricNames(body string) string {
	var names []string
	for line := range strings.Lines(body) {
		name, _, _ := strings.Cut(line, " ")
		for _, want := range []string{
			"vllm:num_requests", "vllm:kv_cache_usage", "vllm:prefix_cache", "vllm:external_prefix", "vllm:nixl_num", "vllm:num_preemptions",
			"vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source", "vllm:generation_tokens", "process_start_time",
		} {
			if strings.HasPrefix(line, want) {
				names = append(names, name)
			}
		}
	}
	// Histograms are not simulated, and the captured engine was no consumer.
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.Contains(n, "kv_fetch_by_stage") || strings.Contains(n, "nixl_num_descriptors")
	})
	return strings.Join(names, "\n")
}

// jsonShape writes keys in order and the type of each value; of a list the shape of its first element.
func jsonShape(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var b strings.Builder
	if err := shape(d, &b); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return b.String()
}

func shape(d *json.Decoder, b *strings.Builder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return shapeInside(d, b, v)
	case string:
		b.WriteString("text")
	case json.Number:
		if strings.ContainsAny(v.String(), ".e") {
			b.WriteString("float")
		} else {
			b.WriteString("int")
		}
	case bool:
		b.WriteString("bool")
	case nil:
		b.WriteString("null")
	}
	return nil
}

func shapeInside(d *json.Decoder, b *strings.Builder, open json.Delim) error {
	b.WriteRune(rune(open))
	for i := 0; d.More(); i++ {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "%v:", key)
		}
		var element strings.Builder
		if err := shape(d, &element); err != nil {
			return err
		}
		if open == '{' || i == 0 {
			b.WriteString(element.String() + " ")
		}
	}
	end, err := d.Token()
	b.WriteString(fmt.Sprint(end))
	return err
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
