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

// env holds the parts of the router that requests and their jobs need under any configuration. The router has
// one env, and all requests share it. Its pointers do not change after New.
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

// telemetry holds the receivers of logs, metrics, traces and records. Immutable after New.
type telemetry struct {
	log    *slog.Logger
	panics panics.Guard
	spans  *observe.Tracer
	reg    *prometheus.Registry
	m      *observe.Metrics
}

// decisions holds the two pools and what decides about them. Immutable after New; each part has its own
// guard.
type decisions struct {
	prefill *prefill.Pool
	decode  *decode.Pool
	planner *planner.Planner
}

// traffic counts the running requests. Each request counts itself in and out. Safe for concurrent use.
type traffic struct {
	inflight atomic.Int64
	retrying atomic.Int64
	ending   atomic.Int32 // the state of the router's end: unready, draining
	requests observe.Running
	places   *places // for prompts that run; does not change
}

// These are the values of traffic.ending besides 0.
const (
	unready  = 1 + iota // readiness fails; new requests are still served
	draining            // new requests are refused
)

// retryBudget returns how many requests may be tried again at a time.
func (t *traffic) retryBudget(cfg *config.Config) int64 {
	return max(int64(cfg.Retry.Min), int64(cfg.Retry.Share*float64(t.inflight.Load())))
}

// InFlight returns how many requests run.
func (t *traffic) InFlight() int { return int(t.inflight.Load()) }

// giveBacks holds the goroutines that give blocks back in the background.
type giveBacks struct {
	running sync.WaitGroup
	places  chan struct{} // as many as may run at once
}

// wake lets requests that wait for room try again.
func (e *env) wake() { e.queue.wake() }

// snapshot is the configuration for requests. A request loads it once and keeps it to its end. Immutable.
type snapshot struct {
	cfg     *config.Config
	inForce *config.InForce // what records say of cfg
	connect connector.Connector
	aliases aliases
	keys    *keys.Table    // of clients
	classes *classes.Table // nil: there are no classes
	cors    *cors.Cors     // nil: no web page may ask
	later   []string       // fields of cfg that need a restart, which people see each second
	answers *answers.Cache // nil: there is no answer cache
}

// revision returns the revision of the configuration; "" before there is one.
func (s *snapshot) revision() string {
	if s == nil {
		return ""
	}
	return s.inForce.Revision
}

// answerCache returns the answer cache of the configuration; nil if there is none.
func (s *snapshot) answerCache() *answers.Cache {
	if s == nil {
		return nil
	}
	return s.answers
}

// origin is what a job knows of its request. Jobs only read it.
//
// Long: a fact of the request a field.
type origin struct {
	r        *http.Request
	start    time.Time
	path     string         // the route
	tenant   uint32         // of the API key of the request, 0 without a key
	key      *keys.Key      // the client's key; nil if the router has no keys
	hold     *keys.Hold     // the hold on the limits of the key; nil if it has no limits
	clientID string         // the id that the client gave the request; "" for none
	session  session        // that the client named
	class    *classes.Class // the class of the request; nil without classes
	goals    classes.Goals  // the goals of the class, or longer goals of the client
	flow     waitline.Order // whose share the request takes; zero: shares are not kept
	span     trace.Span
	seen     *observe.UnderWay // nil until the request is admitted
}

// otherPath is the path label of requests for paths that do not exist. Texts of clients must not become
// labels.
const otherPath = "other"

// ms returns a duration in the unit of records.
func ms(d time.Duration) float64 { return observe.Millis(d) }
