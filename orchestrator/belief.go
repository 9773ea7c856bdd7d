package orchestrator

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"tandem/internal/engine"
	"tandem/internal/rawjson"
)

// leaseEnds is what a prefill engine counts of leases that it ended itself: those that ran out, and reads that came after that. NaN is unknown.
// (vllm:nixl_num_kv_expired_reqs_total, vllm:nixl_num_notifications_after_expiry_total.) Another process counts from zero again, so the two of
// different processes say nothing together.
type leaseEnds struct {
	started       float64 // process start, 0 unknown
	outages       uint32  // how often nobody could be reached there before: an engine that does not tell its start was then another perhaps
	expired, late float64
}

// endsOf adds up the ranks of a server; one rank that does not tell makes the sum unknown.
func (w *watcher) endsOf(m engine.Metrics) *leaseEnds {
	e := leaseEnds{started: m.Started, outages: w.outages.Load()}
	for _, r := range m.Ranks {
		e.expired += r.Counters.NIXLExpired
		e.late += r.Counters.NIXLAfterExpiry
	}
	return &e
}

// unknownEnds are those of an engine that has not been asked yet. They equal nothing, themselves included.
var unknownEnds = &leaseEnds{started: math.NaN(), expired: math.NaN(), late: math.NaN()}

// sameProcess reports whether both were counted by one process.
func (e *leaseEnds) sameProcess(as *leaseEnds) bool {
	return e.started == as.started && (e.started != 0 || e.outages == as.outages)
}

// lent is how long the blocks of the prefill may have been on loan by now. A lease begins between the prefill leg's first byte and the last of its answer:
// nobody knows better, since answers lie in sockets while somebody stands still. What an engine stands still passes on our clock too; what we do may not.
func (h *handoff) lent(now time.Time) time.Duration {
	return now.Sub(h.sentAt) + h.j.q.o.stall.stood(now) - h.stalled
}

// believe decides whether what an answer begins with was computed from the prompt's own blocks. It is asked before anything of the answer is used.
//
// While both engines live, heartbeats keep the lease. A decode engine whose core stands still sends none, and nobody hears it: its API process answers
// /metrics as before. When it goes on it reads blocks that the prefill engine has given to others: 200 with wrong text, seen on vLLM 0.32. A lease cannot
// end before it has lasted as long as it lasts, so what has begun by then is right. What begins later is believed if the prefill engine has not ended a
// lease since, or nobody has read after one was. Else the next attempt is not split.
func (a *answer) believe() *failure {
	h := a.h
	if !h.lends || h.lent(time.Now()) < h.cfg.Connector.Lease {
		return nil
	}
	h.stopClock() // each question that follows has its own time
	a.guard.stop()
	verdict := h.readInTime(a.ctx)
	h.j.q.o.m.late.WithLabelValues(verdict).Inc()
	if verdict == "believed" {
		return nil
	}
	f := refuse("decode", "late", http.StatusGatewayTimeout, "The prompt may have been handed over too late; nothing of the answer was used.")
	f.owner, f.at, f.source, f.retry, f.alone = "decode", h.b.Decode.ID, h.b.Prefill.ID, true, true
	return f
}

// readInTime asks the prefill engine whether a decode engine may have read what was no longer on loan: believed, disbelieved, or unknown.
func (h *handoff) readInTime(ctx context.Context) string {
	now, err := h.askEnds(ctx)
	if err == nil && now.expired != h.ends.expired {
		// Some lease has ended, of whomever. A read after that is counted in the engine's next step, which one that idles has not taken yet.
		if err = h.takeStep(ctx); err == nil {
			now, err = h.askEnds(ctx)
		}
	}
	switch {
	case err != nil:
		return "unknown"
	case now.expired == h.ends.expired, now.late == h.ends.late:
		return "believed"
	case math.IsNaN(now.late):
		return "unknown"
	}
	return "disbelieved"
}

// errOtherProcess says that the prefill engine is not the one any more that had the prompt's blocks: what it counts says nothing of them.
var errOtherProcess = errors.New("the prefill engine was restarted")

func (h *handoff) askEnds(ctx context.Context) (*leaseEnds, error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience*h.cfg.Timeouts.Probe)
	defer cancel()
	m, err := h.from.client.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	now := h.from.w.endsOf(m)
	if !now.sameProcess(h.ends) {
		return nil, errOtherProcess
	}
	return now, nil
}

// takeStep lets the prefill engine compute one token. An engine that refuses to has taken no step.
func (h *handoff) takeStep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeouts.Prefill)
	defer cancel()
	body := rawjson.AppendString([]byte(`{"model":`), h.j.req.Model)
	leg := &engine.Request{Method: http.MethodPost, Path: "/v1/completions", Body: append(body, `,"prompt":[0],"max_tokens":1}`...)}
	leg.Header = []engine.Field{{Key: "X-Request-Id", Value: h.attempt + "-step"}}
	resp, err := h.from.do(ctx, leg)
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
