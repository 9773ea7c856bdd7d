package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Explain plans the request with this body as if it had come now, books nothing, sends nothing but the
// question for token ids, and returns the decision with every plan, term and exclusion. Safe for concurrent
// use.
func (o *Orchestrator) Explain(ctx context.Context, body []byte) (*planner.Decision, error) {
	kind := openai.Completions
	if bytes.Contains(body, []byte(`"messages"`)) {
		kind = openai.Chat
	}
	req, err := openai.Parse(kind, body, openai.Limits{})
	if err != nil {
		return nil, err
	}
	if len(req.Prompts) == 0 && kind == openai.Completions {
		return nil, errExplain
	}
	q := &request{
		env: &o.env, snapshot: o.snap.Load(), id: newID(),
		origin: origin{r: &http.Request{Header: http.Header{}}, path: kind.Path(), start: time.Now()},
	}
	var f *failure
	if req.Model, f = q.modelOr(req.Model); f != nil {
		return nil, f
	}
	j := q.newJob(req, 0)
	if f = j.tokenize(ctx); f != nil {
		return nil, f
	}
	j.prepare()
	return o.planner.Explain(&j.plan, time.Now())
}

// Watch calls send for each record as it comes, with how many the caller has missed since the one before
// because it was slow, until ctx ends or send fails.
func (o *Orchestrator) Watch(ctx context.Context, send func(r *observe.Record, lost uint64) error) error {
	records, lost, stop := o.ring.Watch(256)
	defer stop()
	reported := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-records:
			missed := lost()
			if err := send(r, missed-reported); err != nil {
				return err
			}
			reported = missed
		}
	}
}

// Ready reports whether requests can be served.
func (o *Orchestrator) Ready() bool {
	ok, _ := o.see.Ready()
	return ok
}

var errExplain = errors.New("send the body of a completion or a chat")
