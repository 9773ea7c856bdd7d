package enginesim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Two servers with Mooncake answer as one engine does, whichever leg comes first. The bootstrap server tells
// the engine id of each rank, and another one after a restart. An id that is not known fails at once.
func TestMooncakeServers(t *testing.T) {
	start := func(role core.Role, ranks int) *Server {
		s, err := Start(Options{
			DPRanks: ranks, Bootstrap: "127.0.0.1:0", ZeroLatency: true, Core: core.Config{Mooncake: true, Role: role},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	p := start(core.Producer, 2)
	d := start(core.Consumer, 1)
	alone := start(core.Both, 1)
	if d.BootstrapURL() != "" {
		t.Error("a decode engine has a bootstrap server")
	}
	const prompt = `{"model":"sim","prompt":"one two three four five six seven eight nine ten eleven twelve",`
	want := ""
	if status, a := post(t, alone, "/v1/completions", prompt+`"max_tokens":8}`); status != 200 {
		t.Fatal(status)
	} else {
		want = a.text()
	}
	leg := func(s *Server, params, limit string, rank int) (int, answer) {
		status, _, raw := postRaw(t, s, "/v1/completions",
			prompt+limit+`"kv_transfer_params":{`+params+`}}`, map[string]string{
				"X-data-parallel-rank": fmt.Sprint(rank),
			})
		var a answer
		if err := json.Unmarshal([]byte(raw), &a); err != nil {
			t.Errorf("%v in %s", err, raw)
		}
		return status, a
	}
	for i, decodeFirst := range []bool{false, true, false, true} {
		id, rank := fmt.Sprintf(`"transfer_id":"t%d"`, i), i/2
		two := id + `,"do_remote_prefill":true,"remote_bootstrap_addr":"` + p.BootstrapURL() +
			`","remote_engine_id":"` + p.EngineID(rank) + `"`
		done := make(chan answer, 1)
		decode := func() {
			_, a := leg(d, two, `"max_tokens":8,`, 0)
			done <- a
		}
		if decodeFirst {
			go decode()
			for d.HeldBlocks() == 0 { // it waits
				time.Sleep(time.Millisecond)
			}
		}
		status, a := leg(p, id+`,"do_remote_decode":true`, `"max_tokens":1,"ignore_eos":true,`, rank)
		if status != 200 || string(a.Params) != "null" {
			t.Fatalf("leg 1: %d, %s", status, a.Params)
		}
		if !decodeFirst {
			go decode()
		}
		if got := <-done; got.text() != want || want == "" {
			t.Errorf("%d: %q, want %q", i, got.text(), want)
		}
	}
	before := bootstrap(t, p)
	for rank := range 2 {
		if id := p.EngineID(rank); !strings.Contains(before, fmt.Sprintf(`"%d":{"engine_id":%q`, rank, id)) {
			t.Errorf("rank %d: %s lacks %s", rank, before, id)
		}
	}
	gone := p.EngineID(0)
	if err := p.Fault(Fault{Kind: "restart"}); err != nil {
		t.Fatal(err)
	}
	if after := bootstrap(t, p); strings.Contains(after, gone+`"`) {
		t.Errorf("after a restart: %s", after)
	}
	status, _ := leg(d, `"transfer_id":"x","do_remote_prefill":true,"remote_engine_id":"nobody",`+
		`"remote_bootstrap_addr":"`+p.BootstrapURL()+`"`, `"max_tokens":8,`, 0)
	if status != 500 {
		t.Errorf("an unknown engine: %d", status)
	}
}

func bootstrap(t *testing.T, s *Server) string {
	t.Helper()
	resp, err := http.Get(s.BootstrapURL() + "/query")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.Status, err)
	}
	return string(b)
}
