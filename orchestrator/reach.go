package orchestrator

import (
	"context"
	"net/http"

	"tandem/internal/engine"
	"tandem/internal/replica"
)

// reach is the way to one replica.
type reach struct {
	member replica.Replica
	client *engine.Client
	rank   string // value of X-data-parallel-rank, "" for a server of one rank
	w      *watcher
}

// do sends a request that concerns tokens or their blocks to the replica: to its rank, where the server has
// several. All of them go this way.
func (r *reach) do(ctx context.Context, q *engine.Request) (*engine.Response, error) {
	if r.rank != "" {
		q.Header = append(q.Header, engine.Field{Key: "X-Data-Parallel-Rank", Value: r.rank})
	}
	if era := r.w.process.era.Load(); era > 0 && q.Method == http.MethodPost {
		q.Body = salted(q.Body, era)
	}
	resp, err := r.client.Do(ctx, q)
	if err == nil {
		r.w.hear()
	}
	return resp, err
}

// post asks an engine a question, for the tokenizer.
func (r *reach) post(ctx context.Context, path string, body []byte) (int, []byte, error) {
	answer, err := r.client.Do(ctx, &engine.Request{Method: http.MethodPost, Path: path, Body: body})
	if err != nil {
		return 0, nil, err
	}
	defer answer.Close()
	reply, err := answer.ReadAll(maxQuestion)
	return answer.Status, reply, err
}

// maxQuestion bounds the answer to a question about tokens: ten bytes an id of the longest prompts there are.
const maxQuestion = 64 << 20
