package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// Each kind of failure has a name, a status and a message. A kind with a message from each caller has none
// in the table. Only for an engine's own answer the engine gives status and message.
func TestEachKindOfFailureHasARow(t *testing.T) {
	worded := map[failureKind]bool{
		kindBodyTooLarge: true, kindTooLarge: true, kindBadParams: true, kindForeign: true, kindTaken: true,
		kindExpired: true, kindClientGone: true, kindModelDenied: true, kindOverLimit: true,
	}
	for kind := range failureKinds {
		switch row := &failureTable[kind]; {
		case row.name == "":
			t.Errorf("kind %d has no name", kind)
		case (row.owner == ownerByStatus) != (row.status == 0):
			t.Errorf("%s: owner %d does not fit status %d", row.name, row.owner, row.status)
		case row.owner != ownerByStatus && (row.words == "") != worded[kind]:
			t.Errorf("%s is worded %q", row.name, row.words)
		}
	}
}

// The table decides what follows from a failure: its owner, whether another replica may do better, whether
// a retry repeats work, and whether and how the failure counts against an engine.
func TestWhatFollowsFromAFailure(t *testing.T) {
	engines := func(status int) *failure {
		return answered(kindStatus, site{phase: "decode", at: "d", status: status}, nil, "")
	}
	event := func(status int) *failure {
		return answered(kindErrorEvent, site{phase: "decode", at: "d", status: status}, nil, "")
	}
	at := func(in phase, kind failureKind) *failure { return refuse(kind, site{phase: in}) }
	for name, c := range map[string]struct {
		f               *failure
		as              string
		owner           owner
		retry, harmless bool
		holds           bool
		kind            outlier.Kind
	}{
		"an engine's 400":   {engines(400), "status_400", ownerClient, false, false, false, 0},
		"an engine's 404":   {engines(404), "status_404", ownerEngine, true, true, false, 0},
		"an engine's 429":   {engines(429), "status_429", ownerEngine, true, false, false, 0},
		"an engine's 500":   {engines(500), "status_500", ownerEngine, true, false, true, outlier.ServerError},
		"an event with 400": {event(400), "error_event", ownerClient, false, false, false, 0},
		"an event with 503": {
			event(503), "error_event", ownerEngine, true, false, true, outlier.ServerError,
		},
		"another's 401": {
			misplaced("decode", "d", 401), "status_401", ownerEngine, true, true, true, outlier.Refusing,
		},
		"a late prefill": {
			at("prefill", kindTimeout), "timeout", ownerEngine, true, false, true, outlier.Silent,
		},
		"a late decode": {
			at("decode", kindTimeout), "timeout", ownerEngine, false, false, true, outlier.Silent,
		},
		"a silent prefill": {
			at("prefill", kindSilent), "silent", ownerEngine, true, true, true, outlier.Silent,
		},
		"a silent decode": {
			at("decode", kindSilent), "silent", ownerEngine, true, false, true, outlier.Silent,
		},
		"a broken connection": {
			at("decode", kindBroken), "broken", ownerEngine, true, false, true, outlier.Broken,
		},
		"an old connection": {at("decode", kindStale), "stale", ownerEngine, true, false, false, 0},
		"a full queue":      {at("queue", kindQueueFull), "queue_full", ownerRouter, false, false, false, 0},
		"expired params":    {at("handoff", kindExpired), "expired", ownerEngine, true, true, false, 0},
		"taken params":      {at("handoff", kindTaken), "taken", ownerEngine, true, false, false, 0},
		"bad params": {
			at("prefill", kindBadParams), "bad_params", ownerEngine, true, false, true, outlier.Unusable,
		},
		"a client that left": {leftBy(site{phase: "decode"}), goneName, ownerClient, false, false, false, 0},
	} {
		kind, holds := c.f.outlierKind()
		if c.f.name() != c.as || c.f.owner() != c.owner || c.f.mayRetry() != c.retry ||
			c.f.harmless() != c.harmless || holds != c.holds || holds && kind != c.kind {
			t.Errorf("%s: %s, owner %d, retry %t, harmless %t, counted %t as %v", name, c.f.name(), c.f.owner(),
				c.f.mayRetry(), c.f.harmless(), holds, kind)
		}
	}
}

// The client gets the message of the phase, of the body's reader, or of the engine's own answer.
func TestWordsOfAFailure(t *testing.T) {
	for want, f := range map[string]*failure{
		"The prefill replica cannot be reached.": refuse(kindUnreachable, site{phase: "prefill"}),
		"It takes no token ids.":                 refuse(kindNoIDReuse, site{words: "It takes no token ids."}),
		"`n` is too large.":                      badRequest(&openai.BadRequest{Message: "`n` is too large."}),
		"The request body cannot be read.":       badRequest(errors.New("cut")),
	} {
		if got := openai.Message(f.reply.body); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A failure never changes: later facts are added to a copy.
func TestAFailureDoesNotChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := refuse(kindBroken, site{phase: "decode", at: "d", source: "p"})
	was := *f
	f.withDelivered()
	f.withNotRetried(retrySame)
	f.withNotContinued(tooOften)
	f.withSource("other")
	f.ofSibling()
	if gone := f.heard(ctx); !gone.gone() || gone.cutAt != "d" {
		t.Errorf("for a client that left, the failure is %v at %q", gone, gone.cutAt)
	}
	if f.site != was.site || f.kind != was.kind || f.reply.status != http.StatusBadGateway || f.delivered ||
		f.notRetried+f.notContinued != "" {
		t.Errorf("%+v", f)
	}
}
