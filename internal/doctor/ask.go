package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// asked has the answers of a server's HTTP endpoints.
type asked struct {
	several  []netip.Addr // the addresses of a name that has more than one
	reach    error        // why /v1/models gave no model; then nothing else is known
	model    card
	adapters []card
	names    []string // every served name
	version  string   // "" unknown

	series  scraped
	sources eventSources

	clock serverClock

	tokens engine.TokenSample
}

// scraped is the content of /metrics.
type scraped struct {
	scrape    engine.Metrics
	scrapeErr error
}

// eventSources is the answer to GET /kv_event_sources.
type eventSources struct {
	sourceStatus int           // of GET /kv_event_sources
	told         map[int]*told // the engine's report by rank; nil without a 200
}

// serverClock is the server's time and the doctor's time.
type serverClock struct {
	date  time.Time // Date header of /v1/models, whole seconds; zero: none
	heard time.Time // when it came
}

// card is the entry of the base model in /v1/models.
type card struct {
	ID          string `json:"id"`
	Root        string `json:"root"`
	Parent      string `json:"parent"`
	MaxModelLen int    `json:"max_model_len"`
}

// told is an engine's description of the event stream of one rank (vLLM's
// entrypoints/serve/instrumentator/basic.py).
type told struct {
	Enabled     bool   `json:"enable_kv_cache_events"`
	Publisher   string `json:"publisher"`
	Endpoint    string `json:"endpoint"`
	Replay      string `json:"replay_endpoint"`
	Topic       string `json:"topic"`
	BufferSteps int    `json:"buffer_steps"`
}

// ask asks all questions that need no completion. engine.Probe would send a completion, and keeps less of the
// answers than the doctor can explain.
func (s *server) ask(ctx context.Context) {
	s.fleet.say(s.name, "asking %s for its model, version, load and events", s.url)
	s.seen.several, _ = engine.Several(ctx, s.url, s.fleet.lookUp) // an unknown name cannot be reached either
	if s.seen.reach = s.askModels(ctx); s.seen.reach != nil {
		return
	}
	if status, body, _, err := s.get(ctx, "/version"); err == nil && status == http.StatusOK {
		var answer struct{ Version string }
		_ = json.Unmarshal(body, &answer) // unknown then
		s.seen.version = answer.Version
	}
	s.askMetrics(ctx)
	s.askSources(ctx)
	s.fleet.say(s.name, "asking its tokenizer")
	limited, cancel := context.WithTimeout(ctx, tokensTime)
	defer cancel()
	s.seen.tokens = s.client.SampleTokens(limited, s.seen.model.ID)
}

func (s *server) get(
	ctx context.Context, path string,
) (status int, body []byte, header engine.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	resp, err := s.client.Do(ctx, &engine.Request{Method: http.MethodGet, Path: path, Idempotent: true})
	if err != nil {
		return 0, nil, engine.Header{}, err
	}
	defer resp.Close()
	body, err = resp.ReadAll(64 << 20)
	return resp.Status, body, resp.Header, err
}

func (s *server) askModels(ctx context.Context) error {
	status, body, header, err := s.get(ctx, "/v1/models")
	if err != nil {
		return err
	}
	s.seen.clock.heard = time.Now()
	s.seen.clock.date, _ = http.ParseTime(header.Get("Date"))
	if status != http.StatusOK {
		return &engine.StatusError{Path: "/v1/models", Status: status}
	}
	var list struct{ Data []card }
	if err := json.Unmarshal(body, &list); err != nil {
		return engine.NotJSON("/v1/models", body, err)
	}
	for _, m := range list.Data {
		s.seen.names = append(s.seen.names, m.ID)
		if m.Parent != "" {
			s.seen.adapters = append(s.seen.adapters, m)
		}
		if m.Parent == "" && s.seen.model.ID == "" {
			s.seen.model = m
		}
	}
	if s.seen.model.ID == "" {
		return fmt.Errorf("/v1/models names no base model")
	}
	return nil
}

func (s *server) askMetrics(ctx context.Context) {
	status, body, _, err := s.get(ctx, "/metrics")
	switch {
	case err != nil:
		s.seen.series.scrapeErr = err
	case status != http.StatusOK:
		s.seen.series.scrapeErr = &engine.StatusError{Path: "/metrics", Status: status}
	default:
		s.seen.series.scrape, s.seen.series.scrapeErr = engine.ParseMetrics(body)
	}
}

func (s *server) askSources(ctx context.Context) {
	status, body, _, err := s.get(ctx, "/kv_event_sources")
	if err != nil {
		return
	}
	s.seen.sources.sourceStatus = status
	var answer map[string]*told
	if status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return
	}
	s.seen.sources.told = map[int]*told{}
	for key, t := range answer {
		if n, err := strconv.Atoi(key); err == nil && n >= 0 && t != nil {
			s.seen.sources.told[n] = t
		}
	}
}

// findRanks makes the ranks that events or metrics show, and rank 0 if they show none, as the router does.
func (s *server) findRanks() {
	numbers := slices.AppendSeq(slices.Collect(maps.Keys(s.seen.sources.told)),
		maps.Keys(s.seen.series.scrape.Ranks))
	slices.Sort(numbers)
	if numbers = slices.Compact(numbers); len(numbers) == 0 {
		numbers = []int{0}
	}
	for i, n := range numbers {
		r := &rank{s: s, n: n, told: s.seen.sources.told[n]}
		r.source, r.own = s.listenAt(r.told, n, i)
		s.ranks = append(s.ranks, r)
	}
}

// listenAt returns the address at which Tandem would listen: that of the configuration, otherwise that of the
// engine.
func (s *server) listenAt(t *told, rank, index int) (source kvevents.Source, own bool) {
	e := s.cfg.Events
	switch {
	case !s.follows():
		return kvevents.Source{Rank: rank}, true
	case e.Endpoint != "":
		e = e.OfRank(index)
		found := engine.EventSource(s.host, e.Endpoint, e.Replay, e.Topic)
		return kvevents.Source{Endpoint: found.Endpoint, Replay: found.Replay, Topic: found.Topic, Rank: rank}, true
	case t == nil || !t.Enabled || t.Publisher != "zmq" || t.Endpoint == "":
		return kvevents.Source{Rank: rank}, false
	}
	found := engine.EventSource(s.host, t.Endpoint, t.Replay, t.Topic)
	return kvevents.Source{Endpoint: found.Endpoint, Replay: found.Replay, Topic: found.Topic, Rank: rank}, false
}

// follows reports whether the configuration lets Tandem follow events.
func (s *server) follows() bool {
	return s.pool.Index != config.IndexOff && s.pool.Index != config.IndexApproximate
}
