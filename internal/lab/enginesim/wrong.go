package enginesim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Wrong is a set of wrong set-ups: the server answers well, but a router cannot know its caches. tandem
// doctor finds them. The zero value is right. Config.NoPrefixCaching and Options.NoReplay are two more.
type Wrong struct {
	NullPublisher bool // "publisher":"null": /kv_event_sources says so, and nothing is published
	// vLLM's rule: it connects to an EventsEndpoint without * or ::, so no client can subscribe there.
	StrictBind    bool
	TellReplay    string        // /kv_event_sources names this replay endpoint instead of the real one
	TellBlockSize int           // /metrics names this block size instead of the real one
	BufferSteps   int           // batches kept for replay, 10,000 as in vLLM when 0
	Tokenizer     string        // words of another length give the common words other ids
	ClockSkew     time.Duration // how far the server's clock is fast
	NoConnector   bool          // no --kv-transfer-config: no handoff and no connector series
	MoreParams    string        // further members, as JSON, of what prefills hand over
	NoSalt        bool          // events do not carry cache salts, as before vLLM 0.17
	CacheDType    string        // --kv-cache-dtype in /metrics, "auto" when empty
	NoStats       bool          // --disable-log-stats: none of vLLM's series in /metrics
}

// listens reports whether clients can subscribe to the publisher. vLLM binds endpoints with a wildcard and
// connects to all others (distributed/kv_events.py, ZmqEventPublisher._is_bind_endpoint).
func (s *Server) listens() bool {
	e := s.o.EventsEndpoint
	return !s.o.Wrong.NullPublisher &&
		(!s.o.Wrong.StrictBind || strings.Contains(e, "*") || strings.Contains(e, "::"))
}

func (w *Wrong) publisher() string {
	if w.NullPublisher {
		return "null"
	}
	return "zmq"
}

func (w *Wrong) bufferSteps() int { return cmp.Or(w.BufferSteps, 10_000) }

// told returns the events as the stream publishes them.
func (w *Wrong) told(events []kv.Event) []kv.Event {
	if !w.NoSalt {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].Salt = ""
	}
	return events
}

// now returns the time of the server's clock.
func (s *Server) now() time.Time { return time.Now().Add(s.o.Wrong.ClockSkew) }

// shows reports whether /metrics has the series.
func (w *Wrong) shows(name string) bool {
	nixl := strings.HasPrefix(name, "vllm:nixl_")
	connector := nixl || name == "vllm:num_requests_kv_fetch_by_stage"
	return !w.NoStats && (!w.NoConnector || !connector)
}

// withMore adds MoreParams to the object at the end of dst.
func (w *Wrong) withMore(dst []byte) []byte {
	if w.MoreParams == "" {
		return dst
	}
	return append(append(append(dst[:len(dst)-1], ','), w.MoreParams...), '}')
}
