package orchestrator

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// This file sends a local prompt in pieces. decode/pieces.go decides their lengths and turns. A piece is a
// request of the router for one token after a beginning of the prompt. Its answer is dropped; its blocks stay
// in the engine's prefix cache. The client's whole request comes last, unchanged. So no piece can change its
// answer, even if a piece fails: missing blocks are computed again.

// These are the results of a piece in metrics.
const (
	pieceComputed = "computed"
	pieceFailed   = "failed"
	pieceLost     = "lost" // the engine has not kept the earlier pieces
	pieceCut      = "cut"  // the request ended meanwhile
)

// piecesSent is the state of a prompt that is sent in pieces.
type piecesSent struct {
	began  time.Time // start of the wait for the first turn; zero if the prompt is not sent in pieces
	sent   int
	upto   int // leading tokens that are computed
	cached int // tokens that the engine had before the pieces; -1 unknown
	found  int // tokens that the engine had before the newest piece; -1 unknown
}

// inPieces sends the prompt in pieces until the rest is no more than one piece. A failed piece is no failure
// of the request. Only the end of the request, or an engine that stands still, is a failure.
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
		case next.Upto >= len(ids.list): // the turn came when its time was over
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

// idsForPieces returns the prompt's token ids as its decode replica would make them, or the reason why the
// prompt is not sent in pieces.
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

// watchedPiece calls piece, and watches the streams that run at the same time.
func (h *handoff) watchedPiece(
	ctx context.Context, to *fleet.Endpoint, ids []uint32,
) (result string, beside decode.Pauses, f *failure) {
	watch := h.b.DecodeLease.Watch(time.Now())
	defer func() { beside = watch.End(time.Now()) }() // a panic must also end the watch
	result, f = h.piece(ctx, to, ids)
	return result, beside, f
}

// turn waits until a part of the prompt may be sent, and returns this part. If ctx has ended, the result has
// no meaning.
func (h *handoff) turn(ctx context.Context) decode.Next {
	defer func(asked time.Time) { h.j.rec.Phases.Turn += ms(time.Since(asked)) }(time.Now())
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default: // an earlier signal still waits
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

// cutShort returns the failure of an attempt that ended before the request itself was sent. had is how long
// the engine had a piece. If the attempt's time is over, and was mostly spent waiting, the replica has other
// prompts to compute and is not at fault.
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

// piece sends the first tokens of the prompt and waits for the answer. It returns only failures of the whole
// request.
func (h *handoff) piece(
	ctx context.Context, to *fleet.Endpoint, ids []uint32,
) (result string, f *failure) {
	piece, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	source, pull := h.source(), h.pullSource(time.Now())
	defer h.watch().overPull(pull).overSilence(to, phaseDecode, giveUp).Stop()
	spanned, span := h.j.leg(piece, observe.LegPiece, &to.Member)
	h.pieces.sent++
	h.j.rec.Pieces++
	out := &outgoing{
		body: h.j.req.PrefillIDs(openai.AppendIDs(nil, ids)), path: openai.Completions.Path(),
		id: h.attemptID + "-piece" + strconv.Itoa(h.pieces.sent),
	}
	connector.Whole{Source: source, AttemptID: h.attemptID}.Edit(out.body)
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

// computed records that the engine has computed the prompt up to a token, and how many such tokens the engine
// reports as cached. The engine must report all earlier pieces as cached. Otherwise pieces have no use on
// this engine. Further cached tokens were cached before the pieces.
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

// had reports whether the engine has kept all pieces so far. The engine never reports the last block,
// because it has to compute one token at least.
func (s *piecesSent) had(block int) bool { return s.cached >= 0 && s.cached+block >= s.upto }

// cachedBefore returns how many tokens of a prompt were cached before its pieces, and how many are cached
// now. The engine reports only about its last request. If the engine had kept every piece, the report before
// the pieces counts.
func (h *handoff) cachedBefore() openai.CachedPrompt {
	if h.pieces.upto == 0 || h.pieces.cached < 0 || h.pieces.had(h.blockSize()) {
		return unknownCache
	}
	size := h.blockSize()
	whole := h.j.idsLen() / size * size
	return openai.CachedPrompt{Found: h.pieces.cached, Added: max(0, whole-h.pieces.cached)}
}

// blockSize returns the block size of the decode replica, which is known if the prompt is sent in pieces.
func (h *handoff) blockSize() int { return max(h.b.Decode.Facts.BlockSize, 1) }
