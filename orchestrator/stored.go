package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// modelPath is the path before the name of a model. The name's slashes may be escaped.
const modelPath = "/v1/models/"

// oneModel answers for one model from the list, since engines do not serve this path.
func oneModel(ctx context.Context, q *request) *failure {
	name := strings.TrimPrefix(q.r.URL.Path, modelPath)
	if !q.key.Allows(name) {
		return denied(name)
	}
	var body []byte
	if a := q.aliases[name]; a != nil {
		body = aliasEntry(a, q.fleet, q.cfg.Local)
	} else if usable(q.fleet, name, q.cfg.Local) {
		body = openai.ModelEntry(name, 0)
	}
	if body == nil {
		return refuse(kindUnknownModel, site{phase: phasePlan})
	}
	q.outcome.mode = "ask"
	return q.w.whole(http.StatusOK, "application/json", body, nil)
}

// stored serves requests about a response that one engine stores. The engines are asked in turn until one
// knows the response.
func stored(ctx context.Context, q *request) *failure {
	id := chi.URLParam(q.r, "id")
	if !plainID(id) {
		return refuse(kindBadID, site{phase: phaseAdmit})
	}
	q.outcome.mode = "ask"
	to := holder(ctx, q, id)
	if to == nil {
		return refuse(kindUnknownResponse, site{phase: phasePlan})
	}
	return forward(ctx, q, to, &passthrough{again: true}, nil)
}

// plainID reports whether an id has only usual characters, before it becomes part of an engine's path.
func plainID(id string) bool {
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

// holder returns the engine that stores a response; nil if none does.
func holder(ctx context.Context, q *request, id string) *fleet.Endpoint {
	if !plainID(id) {
		return nil
	}
	tried := map[replica.ID]bool{}
	for {
		to := q.fleet.AnyDecode(func(r *fleet.Endpoint) bool { return tried[r.Member.ID] })
		if to == nil || ctx.Err() != nil {
			return nil
		}
		tried[to.Member.ID] = true
		asked, cancel := context.WithTimeout(ctx, q.cfg.Timeouts.Probe)
		path := "/v1/responses/" + id
		resp, err := to.DoAnyRank(asked, &engine.Request{Method: http.MethodGet, Path: path, Idempotent: true})
		if err == nil {
			_, _ = resp.ReadAll(int64(q.cfg.Limits.AnswerBytes))
			resp.Close()
		}
		cancel()
		if err == nil && resp.Status == http.StatusOK {
			return to
		}
	}
}

// previousResponse returns previous_response_id of a responses request. Only the engine that stores this
// response can continue it.
func previousResponse(body []byte) string {
	if !bytes.Contains(body, []byte(`"previous_response_id"`)) {
		return ""
	}
	var named struct {
		ID string `json:"previous_response_id"`
	}
	if json.Unmarshal(body, &named) != nil {
		return ""
	}
	return named.ID
}
