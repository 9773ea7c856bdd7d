package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// asked is what a server's HTTP endpoints said.
type asked struct {
	reach    error // why /v1/models gave no model; nothing else is known then
	model    card
	adapters []card
	names    []string // every served name
	version  string   // "" unknown

	series  scraped
	sources eventSources

	clock serverClock

	tokens tokenIDs
}

// scraped is what /metrics said.
type scraped struct {
	scrape    engine.Metrics
	scrapeErr error
	caching   map[int]string // enable_prefix_caching of cache_config_info by rank, "True" or "False"
	nixl      bool           // /metrics has series of the NIXL connector
}

// eventSources is what GET /kv_event_sources said.
type eventSources struct {
	sourceStatus int           // of GET /kv_event_sources
	told         map[int]*told // what it said, by rank; nil where it did not answer 200
}

// serverClock is the server's time beside ours.
type serverClock struct {
	date  time.Time // Date header of /v1/models, whole seconds; zero: none
	heard time.Time // when it came
}

// tokenIDs is the ids that the server makes of our texts.
type tokenIDs struct {
	text, chat, tools ids // by /tokenize
	rendered          ids // of the chat with tools, by the chat path itself; an engine need not have render
}

// card is what /v1/models says of the base model.
type card struct {
	ID          string `json:"id"`
	Root        string `json:"root"`
	Parent      string `json:"parent"`
	MaxModelLen int    `json:"max_model_len"`
}

// told is what an engine says of the event stream of one rank (vLLM's
// entrypoints/serve/instrumentator/basic.py).
type told struct {
	Enabled     bool   `json:"enable_kv_cache_events"`
	Publisher   string `json:"publisher"`
	Endpoint    string `json:"endpoint"`
	Replay      string `json:"replay_endpoint"`
	Topic       string `json:"topic"`
	BufferSteps int    `json:"buffer_steps"`
}

// ids are the token ids that a server makes of a text or chat that every server gets.
type ids struct {
	IDs    []uint32
	status int // of the answer, 0 when there was none
	err    error
}

// ask puts all questions that need no completion. Not engine.Probe: it sends one, and keeps less of the
// answers than can be explained.
func (s *server) ask(ctx context.Context) {
	s.fleet.say(s.name, "asking %s for its model, version, load and events", s.url)
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
	model := quote(s.seen.model.ID)
	s.seen.tokens.text = s.tokenize(ctx, fmt.Appendf(nil, `{"model":%s,"prompt":%s}`, model, quote(sampleText)))
	chat := fmt.Appendf(nil,
		`{"model":%s,"messages":[{"role":"system","content":"You answer briefly."},{"role":"user","content":%s}]`,
		model, quote(sampleText))
	s.seen.tokens.chat = s.tokenize(ctx, append(slices.Clip(chat), '}'))
	withTools := append(slices.Clip(chat), sampleTools+"}"...)
	s.seen.tokens.tools = s.tokenize(ctx, withTools)
	s.seen.tokens.rendered = s.render(ctx, withTools)
}

// sampleText has what tokenizers differ in: runs of blanks, digits, case, scripts, signs of several code
// points.
const sampleText = " The Quick brown fox's  fee was 1234567.89 €,\n\tnaïvely paid in Łódź; 東京で会う, Привет! " +
	"👩‍🚀 def f(x): return x**2 <user> the blocks of the router"

// sampleTools goes with a chat: what templates differ in most is how they write tools.
const sampleTools = `,"tools":[{"type":"function","function":{"name":"weather",` +
	`"description":"tells the weather","parameters":` +
	`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

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
		s.seen.series.caching = cachingLabels(body)
		s.seen.series.nixl = bytes.Contains(body, []byte("\nvllm:nixl_"))
	}
}

// cachingLabels tells "False" from a label that is not there, which engine.ParseMetrics does not.
func cachingLabels(body []byte) map[int]string {
	out := map[int]string{}
	for line := range bytes.Lines(body) {
		if labels, ok := bytes.CutPrefix(line, []byte("vllm:cache_config_info{")); ok {
			rank, _ := strconv.Atoi(label(labels, "engine")) // one rank where it is not there
			out[rank] = label(labels, "enable_prefix_caching")
		}
	}
	return out
}

// label finds the value of a label; none of those asked for holds a quote.
func label(labels []byte, name string) string {
	for _, before := range []string{"", ","} {
		key := before + name + `="`
		at := bytes.Index(labels, []byte(key))
		if at < 0 || before == "" && at > 0 {
			continue
		}
		value, _, _ := bytes.Cut(labels[at+len(key):], []byte{'"'})
		return string(value)
	}
	return ""
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

func (s *server) tokenize(ctx context.Context, question []byte) ids {
	var answer struct{ Tokens []uint32 }
	x := s.askIDs(ctx, "/tokenize", question, &answer)
	x.IDs = answer.Tokens
	return x
}

func (s *server) render(ctx context.Context, question []byte) ids {
	var answer struct {
		IDs []uint32 `json:"token_ids"`
	}
	x := s.askIDs(ctx, "/v1/chat/completions/render", question, &answer)
	x.IDs = answer.IDs
	return x
}

// askIDs reads the answer to a question for ids.
func (s *server) askIDs(ctx context.Context, path string, question []byte, answer any) ids {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	status, reply, err := s.client.Post(ctx, path, question)
	if err != nil {
		return ids{err: err}
	}
	if status != http.StatusOK {
		return ids{status: status, err: &engine.StatusError{Path: path, Status: status}}
	}
	return ids{status: status, err: json.Unmarshal(reply, answer)}
}

// findRanks makes the ranks that events or metrics know of, rank 0 when neither knows any: as the router
// counts them.
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

// listenAt tells where Tandem would listen: the configuration's word first, else the engine's own.
func (s *server) listenAt(t *told, rank, index int) (source kvevents.Source, own bool) {
	e := s.cfg.Events
	switch {
	case !s.follows() || overHTTP(s.cfg.Events.Endpoint):
		return kvevents.Source{Rank: rank}, true
	case e.Endpoint != "":
		found := engine.EventSource(s.host, offsetPort(e.Endpoint, index), offsetPort(e.Replay, index), e.Topic)
		return kvevents.Source{Endpoint: found.Endpoint, Replay: found.Replay, Topic: found.Topic, Rank: rank}, true
	case t == nil || !t.Enabled || t.Publisher != "zmq" || t.Endpoint == "":
		return kvevents.Source{Rank: rank}, false
	}
	found := engine.EventSource(s.host, t.Endpoint, t.Replay, t.Topic)
	return kvevents.Source{Endpoint: found.Endpoint, Replay: found.Replay, Topic: found.Topic, Rank: rank}, false
}

// overHTTP reports whether events are a path of the server's own, which is not looked at here.
func overHTTP(endpoint string) bool { return kvevents.Source{Endpoint: endpoint}.OverHTTP() }

// follows reports whether the configuration lets Tandem follow events.
func (s *server) follows() bool {
	return s.pool.Index != config.IndexOff && s.pool.Index != config.IndexApproximate
}

// offsetPort is vLLM's rule for data-parallel ranks: rank r publishes at the port plus r
// (distributed/kv_events.py, offset_endpoint_port).
func offsetPort(endpoint string, rank int) string {
	at := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[at+1:])
	if err != nil || port == 0 {
		return endpoint
	}
	return endpoint[:at+1] + strconv.Itoa(port+rank)
}

func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string never fails
	return b
}
