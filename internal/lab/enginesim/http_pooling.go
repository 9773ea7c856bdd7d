package enginesim

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

// Answers of a server with a pooling model: vectors and scores (entrypoints/pooling of vLLM 0.32.0). Equal
// texts give equal answers, and different texts give different answers, in the form of each API. Texts are
// not tokenized.

// poolingRoutes returns the paths of a server with a pooling model. A server with a generating model lacks
// them.
func poolingRoutes() map[string]route {
	table := map[string]route{
		"/v1/embeddings": {methods: "POST", handle: (*Server).embeddings},
		"/pooling":       {methods: "POST", handle: (*Server).poolings},
		"/classify":      {methods: "POST", handle: (*Server).classify},
	}
	for _, path := range []string{"/score", "/v1/score"} {
		table[path] = route{methods: "POST", handle: (*Server).score}
	}
	for _, path := range []string{"/rerank", "/v1/rerank", "/v2/rerank"} {
		table[path] = route{methods: "POST", handle: (*Server).rerank}
	}
	return table
}

// addPooling adds poolingRoutes to table, if yes.
func addPooling(table map[string]route, yes bool) map[string]route {
	if yes {
		maps.Copy(table, poolingRoutes())
	}
	return table
}

// pooled is the body of a pooling request, with its call.
type pooled struct {
	*tree
	s *Server
	k *call
}

// pool reads a body that needs all members of one of the sets. It returns nil after a refusal.
func (s *Server) pool(k *call, sets ...[]string) *pooled {
	t := newTree(k.body)
	if t == nil {
		k.failWith(badBody())
		return nil
	}
	has := func(set []string) bool {
		return !slices.ContainsFunc(set, func(key string) bool { return t.body[key] == nil })
	}
	if !slices.ContainsFunc(sets, has) {
		t.need(t.body, "", sets[0][0])
	}
	t.optional("int", "truncate_prompt_tokens")
	if bad := t.problem(); bad != nil {
		k.failWith(bad)
		return nil
	}
	if model, _ := t.body["model"].(string); model != "" && !s.serves(model) {
		k.failWith(s.check(&params{model: model}))
		return nil
	}
	time.Sleep(time.Duration(s.o.Core.Cost.T0 * float64(time.Second)))
	return &pooled{tree: t, s: s, k: k}
}

// list returns the value of the first present member as a list.
func (p *pooled) list(keys ...string) []any {
	for _, key := range keys {
		switch v := p.body[key].(type) {
		case nil:
		case []any:
			if len(v) == 0 {
				return nil
			}
			if _, id := v[0].(json.Number); id || key == "messages" {
				return []any{v}
			}
			return v
		default:
			return []any{v}
		}
	}
	return nil
}

// vector returns a vector that depends on the texts and on the number of dimensions.
func (p *pooled) vector(texts ...any) []float64 {
	n := 4
	if d, ok := p.body["dimensions"].(json.Number); ok {
		if v, err := d.Int64(); err == nil {
			n = int(min(max(v, 1), 1024))
		}
	}
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(texts) // a hash accepts everything
	v := make([]float64, n)
	for i := range v {
		_, _ = h.Write([]byte{byte(i)})
		v[i] = float64(h.Sum64()%2001)/1000 - 1
	}
	return v
}

// answer writes the answer object around a list of data.
func (p *pooled) answer(prefix, under string, data []map[string]any) {
	for i := range data {
		data[i]["index"] = i
	}
	id, _ := p.body["request_id"].(string)
	if id == "" {
		id = randomHex(16)
	}
	body, err := json.Marshal(map[string]any{
		"id": prefix + id, "object": "list", "created": time.Now().Unix(), "model": p.s.o.Model, under: data,
		"usage": map[string]any{"prompt_tokens": len(p.k.body) / 4, "total_tokens": len(p.k.body) / 4},
	})
	if err != nil {
		p.k.failWith(internalError)
		return
	}
	p.k.respond(200, jsonType, body)
}

func (s *Server) embeddings(k *call) {
	p := s.pool(k, []string{"input"}, []string{"messages"})
	if p == nil {
		return
	}
	var data []map[string]any
	for _, text := range p.list("input", "messages") {
		data = append(data, map[string]any{"object": "embedding", "embedding": p.vector(text)})
	}
	p.answer("embd-", "data", data)
}

func (s *Server) poolings(k *call) {
	p := s.pool(k, []string{"input"}, []string{"messages"}, []string{"data"})
	if p == nil {
		return
	}
	var data []map[string]any
	for _, text := range p.list("input", "messages", "data") {
		data = append(data, map[string]any{"object": "pooling", "data": p.vector(text)})
	}
	p.answer("pool-", "data", data)
}

func (s *Server) classify(k *call) {
	p := s.pool(k, []string{"input"}, []string{"messages"})
	if p == nil {
		return
	}
	var data []map[string]any
	for _, text := range p.list("input", "messages") {
		v := p.vector(text)
		data = append(data, map[string]any{"label": "A", "probs": v, "num_classes": len(v)})
	}
	p.answer("classify-", "data", data)
}

func (s *Server) score(k *call) {
	p := s.pool(k, []string{"queries", "documents"}, []string{"queries", "items"}, []string{"data_1", "data_2"},
		[]string{"text_1", "text_2"})
	if p == nil {
		return
	}
	queries := p.list("queries", "data_1", "text_1")
	var data []map[string]any
	for i, text := range p.list("documents", "items", "data_2", "text_2") {
		var query any
		if len(queries) > 0 {
			query = queries[min(i, len(queries)-1)]
		}
		data = append(data, map[string]any{"object": "score", "score": p.vector(query, text)[0]})
	}
	p.answer("embd-", "data", data)
}

func (s *Server) rerank(k *call) {
	p := s.pool(k, []string{"query", "documents"})
	if p == nil {
		return
	}
	var data []map[string]any
	for _, text := range p.list("documents") {
		data = append(data, map[string]any{
			"document": map[string]any{"text": text}, "relevance_score": p.vector(p.body["query"], text)[0],
		})
	}
	p.answer("score-", "results", data)
}
