package orchestrator

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/trials"
)

// env is what requests and their jobs need of the router, whatever the configuration is. The router has one,
// and all requests share it. Its pointers do not change after New.
//
// Long: the request path has these in common; a request embeds env instead of the router.
type env struct {
	telemetry
	decisions
	traffic
	fleet     *fleet.Fleet
	trials    *trials.Trials
	queue     *admission
	clock     *liveness.Clock // of this process
	tokens    atomic.Pointer[tokenizer.Resolver]
	giveBacks giveBacks
	ring      *observe.Ring // of the newest decisions
	captures  *observe.Captures
	admin     *admin.Admin
}

// traffic counts what runs now. Each request counts itself in and out. Safe for concurrent use.
type traffic struct {
	inflight atomic.Int64
	retrying atomic.Int64
	draining atomic.Bool
	requests observe.Running
}

// retryBudget is how many requests may be tried again at a time.
func (t *traffic) retryBudget(cfg *config.Config) int64 {
	return max(int64(cfg.Retry.Min), int64(cfg.Retry.Share*float64(t.inflight.Load())))
}

// giveBacks are what gives blocks back now, beside the requests that they were for.
type giveBacks struct {
	running sync.WaitGroup
	places  chan struct{} // as many as may run at once
}

// wake lets requests that wait for room try again.
func (e *env) wake() { e.queue.wake() }

// snapshot is the configuration as requests see it. A request loads it once and keeps it to its end.
// Immutable.
type snapshot struct {
	cfg     *config.Config
	inForce *config.InForce // what records say of cfg
	connect connector.Connector
	keys    []config.Secret
	answers *answers.Cache // nil: there is no answer cache
}

// revision is the configuration's; "" before there is any.
func (s *snapshot) revision() string {
	if s == nil {
		return ""
	}
	return s.inForce.Revision
}

// answerCache is the answer cache of the configuration, nil where there is none.
func (s *snapshot) answerCache() *answers.Cache {
	if s == nil {
		return nil
	}
	return s.answers
}

// origin is what a job knows of the request that it belongs to. Jobs read it only.
type origin struct {
	r        *http.Request
	start    time.Time
	path     string // the route
	tenant   uint32 // whose API key the request came with, 0 where it has none
	clientID string // that the client gave the request, "" where it gave none
	span     trace.Span
	seen     *observe.UnderWay // nil until the request is admitted
}
