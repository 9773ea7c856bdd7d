package answers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Asked is one request as the cache sees it.
type Asked struct {
	Config *config.AnswerCache // in force for this request
	Path   string              // the route
	Query  string              // of the URL
	Header http.Header
	Model  string // as the client names it
	What   Repeatable
	To     Client
	// Names the clients that may share a stored answer; "" for all clients that show the same key.
	Readers string

	// Answer answers the client without the cache.
	Answer func(ctx context.Context) error
	// Apart makes a request of its own that asks the same. Its client is to, and it runs until ctx ends. The
	// room calls Apart on the goroutine of the request, and the computation on another one.
	Apart func(ctx context.Context, to *Recorder) Computation
}

// Repeatable is the part of a request that decides whether its answer may be given again.
type Repeatable interface {
	// Repeatable returns what the answer depends on, or why another answer may be as right.
	Repeatable(rule openai.Repeat) (canonical []byte, why string)
	// Finished reports whether a good answer is complete.
	Finished(answer []byte) bool
}

// Client is the way to the client of a request. The goroutine of the request owns the client.
type Client interface {
	Header() http.Header
	// Begun reports whether the answer has begun.
	Begun() bool
	// BeginAs begins the answer.
	BeginAs(head answercache.Head)
	// Send writes a part of the answer. events is the number of events in the part, 0 outside of a stream.
	Send(part []byte, stream bool, events int) error
}

// Computation computes an answer. The outcome holds also where err is not nil.
type Computation func() (Outcome, error)

// Outcome is what became of a request.
type Outcome struct {
	Mode    string          // how it was served; "" if [Asked.Answer] served it
	Decided *observe.Record // of the decision; nil where the request itself made none
	Led     bool            // the request had the answer computed, and did not join another request
}

// ErrLeft ends a request whose context has ended.
var ErrLeft = errors.New("the client has left")

// WriteError ends a request whose client takes no more.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the write.
func (e *WriteError) Unwrap() error { return e.Err }

// Reasons why a request is not for the cache, beside those of [openai.Request.Repeatable].
const (
	byClient     = "no_store"
	hasQuery     = "query"
	mixedModels  = "mixed_models" // replicas that serve the model have other files or versions
	unknownModel = "unknown_model"
)

// question returns what the request asks of the fleet's engines, or why the request is not for the cache.
func (a *Asked) question(of Fleet, wish *control) (q answercache.Question, why string) {
	switch {
	case wish.off:
		return q, byClient
	case a.Query != "":
		return q, hasQuery
	}
	rule := openai.Repeat{Seeded: a.Config.Seeded, Outlives: a.Config.OutliveEngines}
	canonical, why := a.What.Repeatable(rule)
	if why != "" {
		return q, why
	}
	model, why := modelIdentity(of, a.Model)
	if why != "" {
		return q, why
	}
	return answercache.Question{Surface: a.Path, Tenant: a.readers(), Model: model, Request: canonical}, ""
}

// readers names the clients that may get the answer.
func (a *Asked) readers() string {
	token := a.Header.Get("Authorization") + "\x00" + a.Header.Get("X-Api-Key")
	if a.Readers != "" || token == "\x00" {
		return a.Readers
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
}
