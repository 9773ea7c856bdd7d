package enginesim

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// golden is one exchange with a real vLLM 0.32.0: a prefill and a decode replica connected by NIXL.
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
	data, err := os.ReadFile("conformance/testdata/http-vllm-0.32.0.jsonl")
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

// prompt returns n random token ids.
func prompt(seed uint64, n int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(2048))
	}
	return out
}
