package orchestrator

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"tandem/internal/engine"
	"tandem/internal/rawjson"
	"tandem/orchestrator/fleet"
)

// leaseAge is the longest time for which the blocks of the prefill can have been leased by now. A lease
// begins between the prefill leg's first byte and the last byte of its answer. Nobody knows better, since
// answers lie in sockets while somebody stands still. The time that an engine stands still passes on our
// clock too; the time that this process does may not, and is added.
func (h *handoff) leaseAge(now time.Time) time.Duration {
	return now.Sub(h.sentAt) + h.j.q.o.clock.StalledFor(now) - h.stalled
}

// verifyLease decides whether what an answer begins with was computed from the prompt's own blocks. It is
// asked before anything of the answer is used.
//
// An answer that begins before a lease can have ended is right. One that begins later is right if the
// prefill engine has ended no lease since, or if nobody has read from one that had ended. Otherwise it is
// not used, and the next attempt is not split.
//
// While both engines live, heartbeats keep the lease. A decode engine whose core stands still sends none,
// and nobody notices: its API process answers /metrics as before. When it goes on it reads blocks that the
// prefill engine has given to others: 200 with wrong text, seen on vLLM 0.32.
func (a *answer) verifyLease() *failure {
	h := a.h
	if !h.lends || h.leaseAge(time.Now()) < h.cfg.Connector.Lease {
		return nil
	}
	h.stopClock() // each question that follows has its own time
	a.guard.Stop()
	verdict := h.readInTime(a.ctx)
	h.j.q.o.m.late.WithLabelValues(verdict).Inc()
	if verdict == "believed" {
		return nil
	}
	f := refuse("decode", "late", http.StatusGatewayTimeout,
		"The prompt may have been handed over too late; nothing of the answer was used.")
	f.owner = "decode"
	f.at = h.b.Decode.ID
	f.source = h.b.Prefill.ID
	f.retry = true
	f.alone = true
	return f
}

// readInTime asks the prefill engine whether a decode engine may have read what was no longer on loan:
// believed, disbelieved, or unknown.
func (h *handoff) readInTime(ctx context.Context) string {
	now, err := h.askLeaseCounters(ctx)
	if err == nil && now.Expired != h.ends.Expired {
		// Some lease has ended, of whomever. A read after that is counted in the engine's next step, which
		// one that idles has not taken yet.
		if err = h.takeStep(ctx); err == nil {
			now, err = h.askLeaseCounters(ctx)
		}
	}
	switch {
	case err != nil:
		return "unknown"
	case now.Expired == h.ends.Expired, now.Late == h.ends.Late:
		return "believed"
	case math.IsNaN(now.Late):
		return "unknown"
	}
	return "disbelieved"
}

// errOtherProcess says that the prefill engine is not the one any more that had the prompt's blocks: what it
// counts says nothing of them.
var errOtherProcess = errors.New("the prefill engine was restarted")

func (h *handoff) askLeaseCounters(ctx context.Context) (*fleet.LeaseCounters, error) {
	ctx, cancel := context.WithTimeout(ctx, fleet.ProbePatience*h.cfg.Timeouts.Probe)
	defer cancel()
	now, err := h.from.AskLeaseCounters(ctx)
	if err != nil {
		return nil, err
	}
	if !now.SameProcess(h.ends) {
		return nil, errOtherProcess
	}
	return now, nil
}

// takeStep lets the prefill engine compute one token. An engine that refuses to has taken no step.
func (h *handoff) takeStep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeouts.Prefill)
	defer cancel()
	body := rawjson.AppendString([]byte(`{"model":`), h.j.req.Model)
	leg := &engine.Request{
		Method: http.MethodPost, Path: "/v1/completions", Body: append(body, `,"prompt":[0],"max_tokens":1}`...),
	}
	leg.Header = []engine.Field{{Key: "X-Request-Id", Value: h.attempt + "-step"}}
	resp, err := h.from.Do(ctx, leg)
	if err != nil {
		return err
	}
	defer resp.Close()
	if resp.Status != http.StatusOK {
		return &engine.StatusError{Path: leg.Path, Status: resp.Status}
	}
	_, err = resp.ReadAll(int64(h.cfg.Limits.AnswerBytes))
	return err
}
