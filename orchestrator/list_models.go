package orchestrator

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// listModels answers with the models that can be used now, of all decode replicas together. If all replicas
// serve the same models, as usual, the answer is that of one engine.
func listModels(ctx context.Context, q *request) *failure {
	q.outcome.mode = "ask"
	var lists [][]byte
	reported, failed := map[string]bool{}, 0
	for _, to := range decodes(q.fleet) {
		if !slices.ContainsFunc(to.Member.Facts.Models, func(name string) bool { return !reported[name] }) {
			continue
		}
		list := modelsOf(ctx, q, to)
		if ctx.Err() != nil {
			return goneFailure(ctx, site{phase: phaseDecode})
		}
		if list == nil { // another replica may serve the same models
			if failed++; failed >= q.cfg.Retry.Attempts {
				break
			}
			continue
		}
		lists = append(lists, list)
		for _, name := range to.Member.Facts.Models {
			reported[name] = true
		}
	}
	if len(lists) == 0 && q.key.AllowsAll() {
		return anyEngine(ctx, q)
	} else if len(lists) == 0 {
		return refuse(kindNoReplica, site{phase: phasePlan})
	}
	all := openai.MergeModels(lists)
	shown := func(name string) bool {
		return q.key.Allows(name) && q.aliases[name] == nil && usable(q.fleet, name, q.cfg.Local)
	}
	for name := range reported {
		if !shown(name) {
			all = openai.KeepModels(all, shown)
			break
		}
	}
	return q.w.whole(http.StatusOK, "application/json", openai.AddModels(all, aliasEntries(q)), nil)
}

// aliasEntries returns the entries of the aliases that the client may use, in the order of the file.
func aliasEntries(q *request) (entries [][]byte) {
	for i := range q.cfg.Aliases {
		a := &q.cfg.Aliases[i]
		if entry := aliasEntry(a, q.fleet, q.cfg.Local); entry != nil && q.key.Allows(a.Name) {
			entries = append(entries, entry)
		}
	}
	return entries
}

// decodes returns the decode replicas that respond, in the order of their names.
func decodes(of *fleet.Fleet) []*fleet.Endpoint {
	var all []*fleet.Endpoint
	for _, to := range of.Endpoints() {
		if to.Member.Role == replica.Decode && to.Up() {
			all = append(all, to)
		}
	}
	slices.SortFunc(all, func(a, b *fleet.Endpoint) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	return all
}

// modelsOf returns an engine's own list; nil if it gives none.
func modelsOf(ctx context.Context, q *request, to *fleet.Endpoint) []byte {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeouts.Probe)
	defer cancel()
	r := &engine.Request{
		Method: http.MethodGet, Path: "/v1/models", Idempotent: true, ID: q.id,
	}
	resp, err := to.DoAnyRank(ctx, q.spans.Propagate(ctx, r, q.r.Header))
	if err != nil {
		q.fleet.Failed(to.Member.ID, err)
		return nil
	}
	defer resp.Close()
	body, err := resp.ReadAll(int64(q.cfg.Limits.AnswerBytes))
	if err != nil || resp.Status != http.StatusOK {
		return nil
	}
	return bytes.Clone(body)
}
