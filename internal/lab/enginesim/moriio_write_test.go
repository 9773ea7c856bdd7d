package enginesim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// writeLegs runs story with two servers that have MoRI-IO in WRITE mode.
func writeLegs(t *testing.T, story func(l *legs, ids []uint32, want string)) {
	t.Helper()
	of := func(role core.Role) core.Config {
		return core.Config{MoRIIO: core.MoRIIOWrite, Role: role, Layers: 2}
	}
	inLegsOf(t, of(core.Producer), of(core.Consumer), func(l *legs) {
		ids := make([]uint32, 40)
		for i := range ids {
			ids[i] = uint32(100 + i)
		}
		_, a := l.post(l.whole, ids, 8, "null")
		story(l, ids, a.text())
	})
}

// into runs leg 1 of a transfer into d0, and returns the params.
func (l *legs) into(id string, ids []uint32) string {
	l.t.Helper()
	status, a := l.post(l.p, ids, 1, writeInto(id, "d0"))
	if status != 200 || !strings.Contains(string(a.Params), `"remote_notify_port"`) {
		l.t.Fatalf("leg 1: %d, %s", status, a.Params)
	}
	return string(a.Params)
}

// writeInto returns what a prefill leg into this engine needs.
func writeInto(id, host string) string {
	return fmt.Sprintf(`{"do_remote_decode":true,"transfer_id":%q,"remote_engine_id":null,`+
		`"remote_block_ids":null,"remote_host":%q,"remote_handshake_port":5600,"remote_notify_port":"5600"}`,
		id, host)
}

// waits wants a decode leg to wait for so long, and cuts it.
func (l *legs) waits(ids []uint32, params string, so time.Duration) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), so)
	defer cancel()
	body := strings.NewReader(completionBody(ids, 8, params))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.d.URL()+"/v1/completions", body)
	if err != nil {
		l.t.Fatal(err)
	}
	if resp, err := l.front.Do(r); err == nil {
		resp.Body.Close()
		l.t.Errorf("an answer came: %d", resp.StatusCode)
	}
	time.Sleep(time.Second)
}

func (l *legs) restart(s *Server) {
	l.t.Helper()
	if err := s.Fault(Fault{Kind: "restart"}); err != nil {
		l.t.Fatal(err)
	}
	time.Sleep(time.Second)
}

// Two servers answer as one engine does, and each of them answers a plain request rightly.
func TestMoRIIOWriteServers(t *testing.T) {
	writeLegs(t, func(l *legs, ids []uint32, want string) {
		if _, a := l.post(l.d, ids, 8, l.into("t", ids)); a.text() != want || want == "" {
			t.Errorf("split: %q, want %q", a.text(), want)
		}
		for _, s := range []*Server{l.p, l.d} {
			if _, a := l.post(s, ids, 8, "null"); a.text() != want {
				t.Errorf("alone: %q, want %q", a.text(), want)
			}
		}
	})
}

// A prefill engine shakes hands with a decode engine once. It cannot write to the next process, whose legs
// wait for ever and keep their blocks, until it is restarted itself.
func TestMoRIIOWriteKnowsNoRestart(t *testing.T) {
	writeLegs(t, func(l *legs, ids []uint32, want string) {
		l.post(l.d, ids, 8, l.into("t", ids))
		l.restart(l.d)
		l.waits(ids, l.into("u", ids), time.Hour)
		if l.d.HeldBlocks() == 0 {
			t.Error("the cut leg keeps no blocks")
		}
		l.restart(l.p)
		if _, a := l.post(l.d, ids, 8, l.into("v", ids)); a.text() != want {
			t.Errorf("after a restart of both: %q", a.text())
		}
		l.restart(l.d)
	})
}

// A prefill engine stands still while it waits for the handshake with an engine that does not answer: 30 s
// for each layer, and once more for each after the step. All that it begins later stands behind.
func TestMoRIIOWriteStandsStill(t *testing.T) {
	writeLegs(t, func(l *legs, ids []uint32, want string) {
		began := time.Now()
		if status, _ := l.post(l.p, ids, 1, writeInto("t", "nowhere")); status != 200 {
			t.Errorf("status %d", status)
		}
		if took := time.Since(began).Round(time.Second); took != 2*time.Minute {
			t.Errorf("the engine stood still for %v", took)
		}
		began = time.Now()
		l.waits(ids, l.into("u", ids), 10*time.Minute)
		if took := time.Since(began); took < 12*time.Minute {
			t.Errorf("the next prefill took %v: it did not wait behind the first", took-10*time.Minute)
		}
		l.restart(l.p)
		l.restart(l.d)
	})
}

// D tells a prefill engine of its blocks while this engine restarts. The message waits for the next process.
// Leg 1 under the same id makes the new process write, and the answer is right.
func TestMoRIIOWriteIsRescued(t *testing.T) {
	writeLegs(t, func(l *legs, ids []uint32, want string) {
		params := l.into("t", ids)
		if err := l.p.Fault(Fault{Kind: "restart", For: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := make(chan string)
		go func() {
			_, a := l.post(l.d, ids, 8, params)
			got <- a.text()
		}()
		time.Sleep(5 * time.Second)
		l.into("t", ids)
		if text := <-got; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}
