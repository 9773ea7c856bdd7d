package enginesim

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// server33 is a simulated vLLM 0.33.
func server33(t *testing.T) *Server {
	return startServer(t, Options{
		Version: "0.33.0", ZeroLatency: true, HandshakeTimeout: 50 * time.Millisecond,
		Core: core.Config{Blocks: 200},
	})
}

// asSaid returns params with another value of remote_registration_generation; "" removes it.
func asSaid(t *testing.T, params, value string) string {
	t.Helper()
	const said = `,"remote_registration_generation":1`
	if !strings.Contains(params, said) {
		t.Fatalf("the params have no registration: %s", params)
	}
	if value == "" {
		return strings.Replace(params, said, "", 1)
	}
	return strings.Replace(params, said, strings.TrimSuffix(said, "1")+value, 1)
}

// A decode engine compares the registration with a number, so a value that is not a number crashes it.
// Engines before 0.33 ignore the value.
func TestRegistrationThatIsNoNumberKillsDecode(t *testing.T) {
	for value, dies := range map[string]bool{
		"": false, "1": false, "0": false, "7": false, "null": true, `"1"`: true,
	} {
		t.Run(value, func(t *testing.T) {
			noLeaks(t)
			p, d := server33(t), server33(t)
			ids := prompt(1, 100)
			status, _ := post(t, d, "/v1/completions", completionBody(ids, 4, asSaid(t, prefillLeg(t, p, ids), value)))
			if (status == 500) != dies || (d.Dead() != nil) != dies {
				t.Errorf("status %d, dead %v; want a death: %v", status, d.Dead(), dies)
			}
		})
	}
}

// After a sleep, an engine's blocks can be read only by engines that know its new registration. During the
// sleep it answers health and metrics, and requests wait.
func TestReadsAfterASleep(t *testing.T) {
	noLeaks(t)
	p, d := server33(t), server33(t)
	whole := server33(t)
	split := func(seed uint64, value string) (int, string, string) {
		ids := prompt(seed, 100)
		params := prefillLeg(t, p, ids)
		if value != "same" {
			params = strings.Replace(params, `"remote_registration_generation":2`,
				`"remote_registration_generation":`+value, 1)
		}
		status, got := post(t, d, "/v1/completions", completionBody(ids, 4, params))
		_, want := post(t, whole, "/v1/completions", completionBody(ids, 4, "null"))
		return status, got.text(), want.text()
	}
	if status, got, want := split(1, "same"); status != 200 || got != want {
		t.Fatalf("before the sleep: %d %q, want %q", status, got, want)
	}
	eventually(t, "the lease ends", func() bool { return p.HeldBlocks() == 0 })
	if status, _, _ := postRaw(t, p, "/sleep?level=1", "", nil); status != 200 {
		t.Fatalf("/sleep answered %d", status)
	}
	if _, _, raw := getRaw(t, p, "/is_sleeping"); raw != `{"is_sleeping":true}` {
		t.Errorf("/is_sleeping answers %s", raw)
	}
	if status, _, _ := getRaw(t, p, "/health"); status != http.StatusOK {
		t.Errorf("/health answers %d during the sleep", status)
	}
	_, _, page := getRaw(t, p, "/metrics")
	for _, want := range []string{`sleep_state="awake"} 0.0`, `sleep_state="weights_offloaded"} 1.0`} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	late := make(chan int, 1)
	go func() {
		status, _, _ := postRaw(t, p, "/v1/completions", completionBody(prompt(5, 40), 1, "null"), nil)
		late <- status
	}()
	eventually(t, "the request waits", func() bool { return p.Stats()[0].Waiting == 1 })
	postRaw(t, p, "/wake_up", "", nil)
	if status := <-late; status != 200 {
		t.Errorf("a request from during the sleep was answered with %d", status)
	}
	// The decode engine still has the old registration. Params that do not name the new one point to memory
	// that is no longer registered.
	if status, got, want := split(2, "1"); status == 200 {
		t.Errorf("an old registration: %d %q (right: %q)", status, got, want)
	}
	if status, got, want := split(3, "same"); status != 200 || got != want {
		t.Errorf("the new registration: %d %q, want %q", status, got, want)
	}
	if d.Dead() != nil {
		t.Error("the decode engine died:", d.Dead())
	}
}

// A sleep aborts running requests, and waits for leased blocks.
func TestSleepEndsWhatRuns(t *testing.T) {
	noLeaks(t)
	preset, _ := core.FindPreset("8b")
	s := startServer(t, Options{
		Version: "0.33.0", Core: core.Config{Cost: preset.Cost, Lease: 300 * time.Millisecond},
	})
	prefillLeg(t, s, prompt(1, 64)) // no engine reads these blocks
	ended := make(chan answer, 1)
	go func() {
		_, a := post(t, s, "/v1/completions", completionBody(prompt(2, 40), 4000, "null"))
		ended <- a
	}()
	eventually(t, "the request runs", func() bool { return s.Stats()[0].Running == 1 })
	began := time.Now()
	s.Sleep(2)
	if a := <-ended; len(a.Choices) != 1 || a.Choices[0].FinishReason != "abort" {
		t.Errorf("the running request was answered with %+v", a)
	}
	took := time.Since(began)
	if st := s.Stats()[0]; !st.Asleep || st.SleepLevel != 2 || st.Leases != 0 || took < 100*time.Millisecond {
		t.Errorf("asleep after %v with %d leases: %+v", time.Since(began), st.Leases, st)
	}
}

// Engines of different versions refuse the handshake, at once.
func TestVersionsDoNotPair(t *testing.T) {
	noLeaks(t)
	p := startServer(t, Options{Version: "0.32.0", ZeroLatency: true})
	d := startServer(t, Options{Version: "0.33.0", ZeroLatency: true, HandshakeTimeout: time.Hour})
	ids := prompt(1, 100)
	status, a := post(t, d, "/v1/completions", completionBody(ids, 4, prefillLeg(t, p, ids)))
	if status != 500 || d.Dead() != nil || d.Stats()[0].NixlFailed == 0 {
		t.Errorf("%d %+v, %d failed loads, dead: %v", status, a.Error, d.Stats()[0].NixlFailed, d.Dead())
	}
}

// The replay socket of 0.33 queues a whole replay for a slow reader; that of 0.32 has libzmq's limit of
// 1,000.
func TestReplaySocketsByVersion(t *testing.T) {
	for version, want := range map[string]int{"0.32.0": 0, "0.33.0": 2 * (500 + 1)} {
		s := startServer(t, Options{
			Version: version, EventsEndpoint: "tcp://127.0.0.1:0", Wrong: Wrong{BufferSteps: 500},
		})
		if got := s.cores.ranks[0].events.bind.ReplayHWM; got != want {
			t.Errorf("%s: a high-water mark of %d, want %d", version, got, want)
		}
	}
}
