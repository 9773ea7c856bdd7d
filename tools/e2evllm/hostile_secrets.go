package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// secrets are texts that no client may see: addresses of the engines and their ids.
func (s *stage) secrets(ctx context.Context) ([]*regexp.Regexp, error) {
	secrets := []*regexp.Regexp{regexp.MustCompile(`127\.0\.0\.1|localhost`)}
	for _, e := range s.engines {
		if e.Role == "" {
			continue
		}
		for _, port := range []int{e.Port, e.Side, e.Events, e.Replay} {
			secrets = append(secrets, regexp.MustCompile(fmt.Sprintf(`\b%d\b`, port)))
		}
		if e.Role != producer {
			continue
		}
		params, err := s.leaseOf(ctx, e)
		if err != nil {
			return nil, err
		}
		id, _ := params["remote_engine_id"].(string)
		if id == "" {
			return nil, fmt.Errorf("the engine %s does not report its id: %v", e.Name, params)
		}
		secrets = append(secrets, regexp.MustCompile(regexp.QuoteMeta(id)))
		if err := s.giveBack(ctx, params); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// steal returns the parameters of a prefill of the first engine. No request uses them.
func (s *stage) steal(ctx context.Context) (map[string]any, error) {
	return s.leaseOf(ctx, s.engine("p0"))
}

// leaseOf sends an engine the same request as Tandem's first leg.
func (s *stage) leaseOf(ctx context.Context, e *engine) (map[string]any, error) {
	body := map[string]any{"model": modelName, "max_tokens": 1, "prompt": newValidBodies(
		uint64(time.Now().UnixNano()),
	).g.ids(3 * blockTokens), "kv_transfer_params": map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "remote_block_ids": nil,
		"remote_engine_id": nil,
		"remote_host":      nil, "remote_port": nil,
	}}
	h := exchange(ctx, e.url(), posted(completions, asJSON(body)), false)
	var v struct {
		Params map[string]any `json:"kv_transfer_params"`
	}
	if h.err != nil || h.status != http.StatusOK {
		return nil, fmt.Errorf("a prefill of %s: %d %.200s %w", e.Name, h.status, h.body, h.err)
	}
	err := json.Unmarshal(h.body, &v)
	return v.Params, err
}

// giveBack lets an engine free the blocks of unused parameters: it sends a decode engine a request with them
// that the engine refuses.
func (s *stage) giveBack(ctx context.Context, params map[string]any) error {
	if params["remote_block_ids"] == nil {
		return nil
	}
	h := exchange(ctx, s.engine("d0").url(), posted(completions,
		asJSON(map[string]any{"model": "nobody", "prompt": []int{5}, "kv_transfer_params": params})), false)
	if h.status != http.StatusNotFound {
		return fmt.Errorf("giving back blocks: %d %.200s %w", h.status, h.body, h.err)
	}
	return nil
}

// adminOnly are the engines' paths that no front may serve: a known list, and all others that the engines
// list themselves.
func (s *stage) adminOnly(ctx context.Context) ([]string, error) {
	text, err := get(ctx, s.reference().url()+"/openapi.json")
	if err != nil {
		return nil, err
	}
	var doc struct{ Paths map[string]any }
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("/openapi.json: %w", err)
	}
	all := slices.Clone(adminPaths)
	for path := range doc.Paths {
		if !slices.Contains(all, path) && !served(path) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all, nil
}

// served are the paths of the front. Other paths do not exist there.
func served(path string) bool {
	return slices.Contains(splitPaths, path) || slices.Contains(passPaths, path) || path == "/health" ||
		path == "/v1/models" || strings.HasPrefix(path, "/v1/responses/")
}
