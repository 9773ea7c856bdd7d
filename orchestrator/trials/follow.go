package trials

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

var (
	errNothingCame = errors.New("nothing shows that blocks arrive")
	errNoStep      = errors.New("nothing shows that the prefill engine has received the messages")
)

// Follow hands a canary over from p to d behind an earlier handoff of the same pair. It returns nil when the
// prefill engine has received all earlier messages of the decode engine, because these messages arrive in
// order. An engine reads messages when it begins a step, and a step may be long, so p is asked for one more
// token.
func (t *Trials) Follow(ctx context.Context, p, d *fleet.Endpoint) error {
	q := question(p, d)
	asked := time.Now()
	own := t.ask(ctx, d, q, &engine.Request{Body: q.Own()}, q.Salt+"-own")
	if own.Err != nil {
		return own.Err
	}
	first, second := t.hand(ctx, q, p, d, transferLimit+10*time.Since(asked))
	likely := t.likely(ctx, d, q)
	if q.Judge(first, second, own, likely, canary.Unknown(), canary.Unknown()).Kind != canary.Moved {
		return errNothingCame
	}
	step := t.ask(ctx, p, q, &engine.Request{Body: q.Prefill()}, q.Salt+"-step")
	if step.Err != nil || step.Status != http.StatusOK {
		return errNoStep
	}
	return nil
}
