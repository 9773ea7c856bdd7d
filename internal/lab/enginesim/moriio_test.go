package enginesim

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// moriioLeg1 is what a prefill leg needs.
const moriioLeg1 = `{"do_remote_decode":true,"transfer_id":"t"}`

// moriioLegs runs story with two servers that have MoRI-IO.
func moriioLegs(t *testing.T, story func(l *legs, ids []uint32, want string)) {
	t.Helper()
	of := func(role core.Role) core.Config { return core.Config{MoRIIO: core.MoRIIORead, Role: role} }
	inLegsOf(t, of(core.Producer), of(core.Consumer), func(l *legs) {
		ids := make([]uint32, 40)
		for i := range ids {
			ids[i] = uint32(100 + i)
		}
		_, a := l.post(l.whole, ids, 8, "null")
		story(l, ids, a.text())
	})
}

// handed runs leg 1 and returns the params.
func (l *legs) handed(ids []uint32) string {
	l.t.Helper()
	status, a := l.post(l.p, ids, 1, moriioLeg1)
	if status != 200 || !strings.Contains(string(a.Params), `"remote_notify_port"`) {
		l.t.Fatalf("leg 1: %d, %s", status, a.Params)
	}
	return string(a.Params)
}

// Two servers with MoRI-IO answer as one engine does. A plain request to the decode engine is answered from
// garbage, with status 200; one to the prefill engine is answered rightly.
func TestMoRIIOServers(t *testing.T) {
	moriioLegs(t, func(l *legs, ids []uint32, want string) {
		if _, a := l.post(l.d, ids, 8, l.handed(ids)); a.text() != want || want == "" {
			t.Errorf("split: %q, want %q", a.text(), want)
		}
		if _, a := l.post(l.p, ids, 8, "null"); a.text() != want {
			t.Errorf("the prefill engine alone: %q, want %q", a.text(), want)
		}
		ids[0]++
		_, right := l.post(l.whole, ids, 8, "null")
		if status, a := l.post(l.d, ids, 8, "null"); status != 200 || a.text() == right.text() {
			t.Errorf("the decode engine alone: %d, %q", status, a.text())
		}
	})
}

// A decode engine shakes hands with a prefill engine once. It cannot read the memory of the next process,
// until it is restarted itself.
func TestMoRIIOKnowsNoRestart(t *testing.T) {
	moriioLegs(t, func(l *legs, ids []uint32, want string) {
		l.post(l.d, ids, 8, l.handed(ids))
		restart := func(s *Server) {
			if err := s.Fault(Fault{Kind: "restart"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		restart(l.p)
		if status, _ := l.post(l.d, ids, 8, l.handed(ids)); status != 500 {
			t.Errorf("after a restart of prefill: %d", status)
		}
		restart(l.d)
		if status, a := l.post(l.d, ids, 8, l.handed(ids)); a.text() != want {
			t.Errorf("after a restart of both: %d, %q", status, a.text())
		}
	})
}

// A decode engine stands still while it waits for the handshake with an engine that does not answer.
func TestMoRIIOStandsStill(t *testing.T) {
	moriioLegs(t, func(l *legs, ids []uint32, _ string) {
		params := l.handed(ids)
		nowhere := strings.ReplaceAll(params, "5600", "5999")
		done := make(chan error, 2)
		for _, leg := range []string{nowhere, params} {
			go func() {
				body := strings.NewReader(completionBody(ids, 8, leg))
				resp, err := l.front.Post(l.d.URL()+"/v1/completions", "application/json", body)
				if err == nil {
					resp.Body.Close()
				}
				done <- err
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		select {
		case err := <-done:
			t.Errorf("an answer came: %v", err)
		default:
		}
		if err := l.d.Fault(Fault{Kind: "restart"}); err != nil {
			t.Fatal(err)
		}
		<-done
		<-done
	})
}

// A read that takes over 30 s is given up by the step, which goes on over blocks that are not there: status
// 200, and wrong text.
func TestMoRIIOGoesOnWithoutBlocks(t *testing.T) {
	moriioLegs(t, func(l *legs, ids []uint32, want string) {
		for slow, right := range map[time.Duration]bool{29 * time.Second: true, 31 * time.Second: false} {
			l.d.o.TransferLatency = slow
			began := time.Now()
			status, a := l.post(l.d, ids, 8, l.handed(ids))
			if took := time.Since(began); status != 200 || a.text() == want != right || took > 32*time.Second {
				t.Errorf("a read of %v: %d, %q after %v, want %q", slow, status, a.text(), took, want)
			}
			time.Sleep(5 * time.Second)
			if err := l.d.Fault(Fault{Kind: "restart"}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
