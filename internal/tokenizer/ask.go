package tokenizer

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/internal/replica"
)

// ask goes through the sources, best first.
func (r *Resolver) ask(ctx context.Context, via Via, q question) Result {
	if via.Post == nil {
		return r.estimate(q, ctx.Err())
	}
	if r.canRender(via, q) {
		if result, ok := r.try(ctx, via,
			source{Render, q.renderPath, q.render(), r.o.RenderTimeout, via.Release, true}); ok {
			return r.orEstimate(q, result)
		}
	}
	const path = "/tokenize"
	if q.tokenize != nil && ctx.Err() == nil && !r.missing.is(endpoint{via.Key, path}, time.Now()) {
		if result, ok := r.try(ctx, via,
			source{Tokenize, path, q.tokenize(), r.o.TokenizeTimeout, via.Release, q.exact}); ok {
			return r.orEstimate(q, result)
		}
	}
	return r.estimate(q, ctx.Err())
}

// orEstimate gives a refusal, or silence, the number of tokens that it lacks.
func (r *Resolver) orEstimate(q question, result Result) Result {
	if result.Err != nil || result.Source == Estimate {
		return r.estimate(q, result.Err)
	}
	return result
}

// source is one way to ask.
type source struct {
	name    Source
	path    string
	body    []byte
	timeout time.Duration
	of      replica.Release
	exact   bool // its answer, or its refusal, is what the engine would make of the request
}

// try asks one source; ok is false when the next one is to be asked.
func (r *Resolver) try(ctx context.Context, via Via, s source) (result Result, ok bool) {
	asking, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	status, reply, err := via.Post(asking, s.path, s.body)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil:
		return Result{Source: Estimate}, true // an engine that stands still answers no other question either
	case err != nil:
		return Result{}, false
	case status == http.StatusOK:
		return r.read(s, reply)
	case status == http.StatusBadRequest && s.exact:
		return Result{Err: &Rejected{Status: status, Body: bytes.Clone(reply)}}, true
	case notThere(status, reply):
		r.missing.note(endpoint{via.Key, s.path}, time.Now().Add(r.o.remember))
	}
	return Result{}, false
}

// notThere reports whether the engine lacks the endpoint (404, 405) or has switched it off (403). A model
// that the engine does not serve is a 404 too, but with an error in the body.
func notThere(status int, reply []byte) bool {
	switch status {
	case http.StatusForbidden, http.StatusMethodNotAllowed:
		return true
	case http.StatusNotFound:
		return !bytes.Contains(reply, []byte(`"error"`))
	}
	return false
}

// read takes the ids out of a reply.
func (r *Resolver) read(s source, reply []byte) (Result, bool) {
	name := "tokens"
	if s.name == Render {
		name = "token_ids"
	}
	ids, ok := findIDs(reply, name)
	if !ok || len(ids) == 0 {
		return Result{}, false
	}
	result := Result{IDs: ids, Count: len(ids), Source: s.name, Of: s.of, Exact: s.exact}
	if len(ids) > r.o.maxTokens {
		result.IDs, result.Exact = nil, false
	}
	return result, true
}

// findIDs reads the member name of an object, or of the only object in an array.
func findIDs(reply []byte, name string) (ids []uint32, ok bool) {
	s := rawjson.Scanner{Data: reply}
	if s.Peek() != '[' {
		ids = idsIn(&s, name)
	} else {
		for i := range s.Elements() {
			if i > 0 {
				return nil, false
			}
			ids = idsIn(&s, name)
		}
	}
	s.End()
	return ids, s.Err() == nil
}

func idsIn(s *rawjson.Scanner, name string) (ids []uint32) {
	for key := range s.Members() {
		if rawjson.Equal(key, name) {
			ids = s.IDs(nil)
		} else {
			s.Skip()
		}
	}
	return ids
}

// endpoint is a path of an engine.
type endpoint struct{ engine, path string }

// missing remembers for a while which endpoints engines do not have. At its bound it forgets all, which costs
// a question each.
type missing struct {
	mu    sync.Mutex
	until map[endpoint]time.Time
}

const maxMissing = 4096

func (m *missing) is(e endpoint, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.until[e]
	if ok && !now.Before(until) {
		delete(m.until, e)
		return false
	}
	return ok
}

func (m *missing) note(e endpoint, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.until) >= maxMissing {
		clear(m.until)
	}
	m.until[e] = until
}

// forget lets the engine be asked for all again.
func (m *missing) forget(engine string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.until, func(e endpoint, _ time.Time) bool { return e.engine == engine })
}
