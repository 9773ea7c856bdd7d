package orchestrator

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// This file sends a prompt that its decode replica computes itself in pieces, whose lengths and turns
// decode/pieces.go says. A piece is a request of ours for one token behind a beginning of the prompt: its
// answer is thrown away, and what it leaves is blocks in the engine's prefix cache. The request itself comes
// behind them as the client sent it, so that no piece can change its answer, whatever becomes of it: blocks
// that are not there are computed again.

// What may become of a piece, as metrics say it.
const (
	pieceComputed = "computed"
	pieceFailed   = "failed"
	pieceLost     = "lost" // the engine has not kept the ones before
	pieceCut      = "cut"  // the request ended meanwhile
)

// piecesSent is what a handoff has sent of its prompt in pieces.
type piecesSent struct {
	began  time.Time // when the first turn was waited for; zero where the prompt is not sent in pieces
	sent   int
	upto   int // leading tokens that are computed
	cached int // of these, what the engine had before they were asked for; -1 unknown
	found  int // of the newest piece, what it had when that came; -1 unknown
}

// inPieces sends the prompt in pieces, until what is left of it is no more than one. What fails of that is no
// failure of the request: only a request that has ended, or an engine that stands still, is one.
func (h *handoff) inPieces(ctx context.Context) *failure {
	h.pieces.cached = -1
	ids, whole := h.idsForPieces()
	if h.j.rec.Whole = whole; whole != "" {
		return nil
	}
	to := h.acquire(&h.b.Decode)
	if to == nil {
		return h.left(&h.b.Decode)
	}
	h.pieces.began = time.Now()
	defer func() { h.j.rec.Phases.Prefill += ms(time.Since(h.pieces.began)) }()
	h.startDecodeClock()
	for {
		next := h.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return h.cutShort(ctx, 0)
		case next.Upto >= len(ids.list) && h.clock.stop():
			h.j.rec.Whole = next.Whole
			return nil
		case next.Upto >= len(ids.list): // its turn came when its time was over
			<-ctx.Done()
			return h.cutShort(ctx, 0)
		}
		result, beside, f := h.watchedPiece(ctx, to, ids.list[:next.Upto])
		h.j.m.Decisions.Pieces.WithLabelValues(result).Inc()
		if f != nil {
			return f
		}
		h.b.DecodeLease.Computed(result == pieceComputed, h.pieces.found, beside, time.Now())
	}
}

// idsForPieces returns the prompt's token ids as its decode replica would make them, or why they are not sent
// in pieces.
func (h *handoff) idsForPieces() (ids *legIDs, whole string) {
	switch {
	case h.j.whole != "":
		return nil, h.j.whole
	case !h.j.plan.Pieces:
		return nil, "its token ids are not known"
	}
	if whole = h.b.DecodeLease.Whole(); whole != "" {
		return nil, whole
	}
	if ids = h.j.legsFor(&h.b.Decode); ids == nil {
		return nil, "its token ids are of another release than its replica"
	}
	return ids, ""
}

// watchedPiece is piece, and what streams got beside it.
func (h *handoff) watchedPiece(
	ctx context.Context, to *fleet.Endpoint, ids []uint32,
) (result string, beside decode.Pauses, f *failure) {
	watch := h.b.DecodeLease.Watch(time.Now())
	defer func() { beside = watch.End(time.Now()) }() // a panic is no reason to go on looking
	result, f = h.piece(ctx, to, ids)
	return result, beside, f
}

// turn waits until something of the prompt is to be sent, and returns what; that means nothing when ctx has
// ended.
func (h *handoff) turn(ctx context.Context) decode.Next {
	defer func(asked time.Time) { h.j.rec.Phases.Turn += ms(time.Since(asked)) }(time.Now())
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default: // it has been woken already, and has not looked yet
		}
	}
	for {
		next := h.b.DecodeLease.Next(time.Now(), wake)
		if next.Upto > 0 {
			return next
		}
		timer := time.NewTimer(next.Ask)
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return next
		}
	}
}

// cutShort is an attempt that ended before the request itself was sent, while the engine had a piece for so
// long. Where its time was over, most of it for waiting, the replica has others to compute: that is no fault
// of its.
func (h *handoff) cutShort(ctx context.Context, had time.Duration) *failure {
	cause := context.Cause(ctx)
	if cause != errPhaseTimeout || had > h.cfg().Timeouts.DecodeFirst/2 {
		return legFailed(ctx, phaseDecode, h.b.Decode.ID, cause)
	}
	return refuse(kindQueueTimeout, site{
		phase: phaseQueue, err: cause,
		words: "The decode replica did not come to the prompt within the time that a first token may take.",
	})
}

// piece sends the first tokens of the prompt and waits for the answer. It fails only as the request does.
func (h *handoff) piece(
	ctx context.Context, to *fleet.Endpoint, ids []uint32,
) (result string, f *failure) {
	piece, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer h.watch().overSilence(to, phaseDecode, giveUp).Stop()
	spanned, span := h.j.leg(piece, observe.LegPiece, &to.Member)
	h.pieces.sent++
	h.j.rec.Pieces++
	out := &outgoing{
		body: h.j.req.PrefillIDs(openai.AppendIDs(nil, ids)), path: openai.Completions.Path(),
		id: h.attemptID + "-piece" + strconv.Itoa(h.pieces.sent),
	}
	asked := time.Now()
	answer, err := h.pieceAnswer(spanned, to, out.made(spanned, h.j))
	if piece.Err() != nil {
		f = h.cutShort(piece, time.Since(asked))
	}
	endPrefill(span, &answer, f)
	switch {
	case f != nil:
		return pieceCut, f
	case err != nil || answer.PromptTokens > 0 && answer.PromptTokens != len(ids):
		return pieceFailed, nil
	}
	return h.pieces.computed(len(ids), answer.CachedTokens, h.blockSize()), nil
}

// pieceAnswer sends a piece and reads its answer.
func (h *handoff) pieceAnswer(
	ctx context.Context, to *fleet.Endpoint, leg *engine.Request,
) (openai.PrefillAnswer, error) {
	none := openai.PrefillAnswer{CachedTokens: -1}
	resp, err := to.Do(ctx, leg)
	giveBuffer(leg.Body)
	if err != nil {
		return none, err
	}
	defer resp.Close()
	raw, err := resp.AppendAll(borrow(0), int64(h.cfg().Limits.AnswerBytes))
	defer giveBuffer(raw)
	switch {
	case err != nil:
		return none, err
	case resp.Status != http.StatusOK:
		return none, errNoAnswer
	}
	return openai.ReadPrefill(raw)
}

// computed notes that the engine has computed the prompt up to a token, and how much of that it says that it
// had: all pieces before, or pieces are of no use there. What it had beyond them was there before all.
func (s *piecesSent) computed(upto, cached, block int) string {
	had, before := s.had(block), s.upto
	s.upto, s.found = upto, cached
	switch {
	case s.sent == 1, had && cached > before:
		s.cached = cached
	case cached >= 0 && cached < before/2:
		return pieceLost
	}
	return pieceComputed
}

// had reports whether the engine had all that it was sent so far. It never says so of the last block: it has
// to compute a token at least.
func (s *piecesSent) had(block int) bool { return s.cached >= 0 && s.cached+block >= s.upto }

// cachedBefore is what the engine had of a prompt that was sent to it in pieces, and what it has of it since:
// what it says itself behind them is of the request alone. Where it had all of them that is what was there.
func (h *handoff) cachedBefore() openai.CachedPrompt {
	if h.pieces.upto == 0 || h.pieces.cached < 0 || h.pieces.had(h.blockSize()) {
		return unknownCache
	}
	size := h.blockSize()
	whole := h.j.idsLen() / size * size
	return openai.CachedPrompt{Found: h.pieces.cached, Added: max(0, whole-h.pieces.cached)}
}

// blockSize is that of the decode replica, which tells one where prompts come in pieces.
func (h *handoff) blockSize() int { return max(h.b.Decode.Facts.BlockSize, 1) }
