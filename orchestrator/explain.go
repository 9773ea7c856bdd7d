package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// explain plans the request with this body as if it had just arrived. It books nothing, and sends only the
// question for token ids. It returns the decision with every plan, term and exclusion. Safe for concurrent
// use.
func (t *front) explain(ctx context.Context, body []byte) (*planner.Decision, error) {
	kind := openai.Completions
	if bytes.Contains(body, []byte(`"messages"`)) {
		kind = openai.Chat
	}
	q := &request{
		env: t.env, snapshot: t.snap.Load(), id: newID(),
		origin: origin{r: &http.Request{Header: http.Header{}}, path: kind.Path(), start: time.Now()},
	}
	req, f := q.understood(kind, body, openai.Limits{})
	switch {
	case f != nil && f.kind == kindBadRequest:
		return nil, f.err // without the texts for a log line
	case f != nil:
		return nil, f
	}
	if len(req.Prompts) == 0 && kind == openai.Completions {
		return nil, errExplain
	}
	j := q.newJob(req, 0)
	if f = j.tokenize(ctx); f != nil {
		return nil, f
	}
	j.prepare()
	return q.planner.Explain(&j.plan, time.Now())
}

var errExplain = errors.New("send the body of a completion or a chat")
