package orchestrator

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/cors"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/internal/waitline"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/trials"
	"github.com/tandem-router/tandem/prefill"
)

// env is what requests and their jobs need of the router, whatever the configuration is. The router has one,
// and all requests share it. Its pointers do not change after New.
//
// Long: every step of the request path uses these fields; a request embeds env instead of the router.
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

// telemetry is where what happens is told. Immutable after New.
type telemetry struct {
	log    *slog.Logger
	panics panics.Guard
	spans  *observe.Tracer
	reg    *prometheus.Registry
	m      *observe.Metrics
}

// decisions are made over the two pools. Immutable after New; each has a guard of its own.
type decisions struct {
	prefill *prefill.Pool
	decode  *decode.Pool
	planner *planner.Planner
}

// traffic counts what runs now. Each request counts itself in and out. Safe for concurrent use.
type traffic struct {
	inflight atomic.Int64
	retrying atomic.Int64
	ending   atomic.Int32 // how far the end of the router has come: unready, draining
	requests observe.Running
	places   *places // for prompts that run; does not change
}

// What traffic.ending may be besides 0.
const (
	unready  = 1 + iota // readiness fails; new requests are still served
	draining            // new requests are refused
)

// retryBudget is how many requests may be tried again at a time.
func (t *traffic) retryBudget(cfg *config.Config) int64 {
	return max(int64(cfg.Retry.Min), int64(cfg.Retry.Share*float64(t.inflight.Load())))
}

// InFlight tells how many requests are being served.
func (t *traffic) InFlight() int { return int(t.inflight.Load()) }

// giveBacks are the goroutines that give blocks back beside the requests.
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
	aliases aliases
	keys    *keys.Table    // of clients
	classes *classes.Table // nil: there are no classes
	cors    *cors.Cors     // nil: no web page may ask
	later   []string       // fields of cfg that take a restart, as people see them each second
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
//
// Long: a fact of the request a field.
type origin struct {
	r        *http.Request
	start    time.Time
	path     string         // the route
	tenant   uint32         // of the API key of the request, 0 without a key
	key      *keys.Key      // that the client showed; nil where the router has no keys
	hold     *keys.Hold     // of the limits of the key; nil where the key has none
	clientID string         // that the client gave the request, "" where it gave none
	session  session        // that the client named
	class    *classes.Class // of the request; nil where there are no classes
	goals    classes.Goals  // of the class, or longer goals of the client
	flow     waitline.Order // whose share it takes; zero: shares are not kept
	span     trace.Span
	seen     *observe.UnderWay // nil until the request is admitted
}

// otherPath is the path label of requests for what does not exist: what clients make up is no label.
const otherPath = "other"

// ms is a duration as records say it.
func ms(d time.Duration) float64 { return observe.Millis(d) }
