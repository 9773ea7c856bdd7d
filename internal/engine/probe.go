package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/replica"
)

// Probe asks the server for its facts, one per data-parallel rank in the order of rank numbers, the first
// being rank FirstRank.
//
// Only /v1/models must answer. Every other endpoint is missing from some version or behind some flag; its
// facts then stay unknown. A broken connection is an error in any case, so that an engine that starts or
// stops is asked again. Where ids can be reused, three checks send a request of one token each, to chat,
// messages and responses.
func (c *Client) Probe(ctx context.Context) ([]replica.Facts, error) {
	base, err := c.Models(ctx)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	p := probe{client: c, facts: base}
	for _, step := range []func(context.Context) error{
		p.version, p.metrics, p.sources, p.render, p.tokens, p.reuse, p.reuseOther,
	} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
	}
	return p.ranks(), nil
}

// probe gathers what the endpoints say.
type probe struct {
	client  *Client
	facts   replica.Facts // what all ranks share
	scraped Metrics
	events  map[int]replica.EventSource
}

type modelList struct {
	Data []struct {
		ID          string `json:"id"`
		Root        string `json:"root"`
		Parent      string `json:"parent"`
		MaxModelLen int    `json:"max_model_len"`
	} `json:"data"`
}

// Models asks the server for the facts about its models: Model, Root, MaxModelLen, Models, Adapters and
// AdapterRoots.
func (c *Client) Models(ctx context.Context) (replica.Facts, error) {
	status, body, err := c.get(ctx, "/v1/models")
	if err != nil {
		return replica.Facts{}, err
	}
	if status != http.StatusOK {
		return replica.Facts{}, &StatusError{Path: "/v1/models", Status: status}
	}
	var list modelList
	if err := json.Unmarshal(body, &list); err != nil {
		return replica.Facts{}, NotJSON("/v1/models", body, err)
	}
	return list.facts()
}

// facts takes the first card without a parent for the base model; cards with one are its adapters.
func (l *modelList) facts() (replica.Facts, error) {
	var f replica.Facts
	for _, m := range l.Data {
		f.Models = append(f.Models, m.ID)
		if m.Parent != "" {
			f.Adapters = append(f.Adapters, m.ID)
			if f.AdapterRoots == nil {
				f.AdapterRoots = map[string]string{}
			}
			f.AdapterRoots[m.ID] = m.Root
		} else if f.Model == "" {
			f.Model = m.ID
			f.Root = m.Root
			f.MaxModelLen = m.MaxModelLen
		}
	}
	if f.Model == "" {
		return f, fmt.Errorf("/v1/models: no base model among %d", len(l.Data))
	}
	return f, nil
}

func (p *probe) version(ctx context.Context) error {
	status, body, err := p.client.get(ctx, "/version")
	if err != nil || status != http.StatusOK {
		return err
	}
	var answer struct{ Version string }
	if json.Unmarshal(body, &answer) == nil {
		p.facts.Version = answer.Version
	}
	return nil
}

func (p *probe) metrics(ctx context.Context) error {
	status, body, err := p.client.get(ctx, "/metrics")
	if err != nil || status != http.StatusOK {
		return err
	}
	if m, err := ParseMetrics(body); err == nil {
		p.scraped = m
	}
	return nil
}

type eventSource struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Topic     string `json:"topic"`
}

func (p *probe) sources(ctx context.Context) error {
	status, body, err := p.client.get(ctx, "/kv_event_sources")
	if err != nil || status != http.StatusOK {
		return err
	}
	var answer map[string]eventSource
	if json.Unmarshal(body, &answer) != nil {
		return nil
	}
	p.events = make(map[int]replica.EventSource, len(answer))
	for key, s := range answer {
		rank, err := strconv.Atoi(key)
		if err != nil || rank < 0 || rank >= maxRanks {
			continue
		}
		p.events[rank] = replica.EventSource{}
		if s.Enabled && s.Publisher == "zmq" && s.Endpoint != "" {
			p.events[rank] = EventSource(p.client.host, s.Endpoint, s.Replay, s.Topic)
		}
	}
	return nil
}

// render asks for the shortest rendering there is: 403 without --enable-scale-out, 404 before it existed.
func (p *probe) render(ctx context.Context) error {
	status, _, err := p.client.Post(ctx, "/v1/completions/render",
		fmt.Appendf(nil, `{"model":%s,"prompt":"a","max_tokens":1}`, quote(p.facts.Model)))
	p.facts.Render = status == http.StatusOK
	return err
}

// tokens asks for the ids of sample texts.
func (p *probe) tokens(ctx context.Context) error {
	sample := p.client.SampleTokens(ctx, p.facts.Model)
	p.facts.Tokens = sample.Hashes()
	for _, x := range []IDs{sample.Text, sample.Chat, sample.Tools, sample.Rendered} {
		if x.Err != nil && x.Status == 0 { // no answer at all
			return x.Err
		}
	}
	return nil
}

// reuseIDs is a prompt no chat template makes; its ids are in every vocabulary.
const reuseIDs = "[3,1,4,1,5,9,2,6]"

// reuse checks that a chat request takes its prompt from kv_transfer_params.prompt_token_ids, which vLLM
// promises since 0.27. If the router believed this wrongly, the decode replica would compute another prompt
// than the one whose KV it received. The answer also shows how the engine forms the ids of its answers.
func (p *probe) reuse(ctx context.Context) error {
	if !replica.AtLeast(p.facts.Version, 0, 27) {
		return nil
	}
	status, body, err := p.client.Post(ctx, "/v1/chat/completions", fmt.Appendf(nil,
		`{"model":%s,"messages":[{"role":"user","content":"a"}],"max_tokens":1,"temperature":0,`+
			`"return_token_ids":true,"kv_transfer_params":{"prompt_token_ids":%s}}`,
		quote(p.facts.Model), reuseIDs))
	if err != nil || status != http.StatusOK {
		return err
	}
	p.facts.ReuseIDs = echoes(body, reuseIDs)
	var answer struct {
		Fingerprint string `json:"system_fingerprint"`
	}
	if json.Unmarshal(body, &answer) == nil {
		p.facts.Fingerprint = answer.Fingerprint
	}
	return nil
}

// reuseOther checks the same for /v1/messages and /v1/responses. Their answers do not tell the prompt's ids
// but count them. No template makes one token of four words.
func (p *probe) reuseOther(ctx context.Context) (err error) {
	if !p.facts.ReuseIDs || !p.facts.Render { // without ids from these APIs there is nothing to reuse
		return nil
	}
	const ids = `"temperature":0,"kv_transfer_params":{"prompt_token_ids":[3]}`
	model := quote(p.facts.Model)
	p.facts.ReuseOther.Messages, err = p.countsOne(ctx, "/v1/messages", fmt.Appendf(nil,
		`{"model":%s,"messages":[{"role":"user","content":"one two three four"}],"max_tokens":1,%s}`, model, ids))
	if err != nil {
		return err
	}
	p.facts.ReuseOther.Responses, err = p.countsOne(ctx, "/v1/responses", fmt.Appendf(nil,
		`{"model":%s,"input":"one two three four","max_output_tokens":1,"store":false,%s}`, model, ids))
	return err
}

// countsOne reports whether the engine counts one token of prompt in a request.
func (p *probe) countsOne(ctx context.Context, path string, question []byte) (bool, error) {
	status, body, err := p.client.Post(ctx, path, question)
	var answer struct {
		Usage struct {
			Input int `json:"input_tokens"`
		} `json:"usage"`
	}
	return err == nil && status == http.StatusOK && json.Unmarshal(body, &answer) == nil &&
		answer.Usage.Input == 1, err
}

func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string never fails
	return b
}

func echoes(body []byte, want string) bool {
	var answer struct {
		IDs []int `json:"prompt_token_ids"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return false
	}
	got, err := json.Marshal(answer.IDs)
	return err == nil && string(got) == want
}

// ranks makes the facts of each rank that events or metrics know of, rank 0 when neither knows any.
func (p *probe) ranks() []replica.Facts {
	numbers := slices.AppendSeq(slices.Collect(maps.Keys(p.events)), maps.Keys(p.scraped.Ranks))
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if len(numbers) == 0 {
		numbers = []int{0}
	}
	p.facts.Ranks = len(numbers)
	p.facts.FirstRank = numbers[0]
	p.facts.Started = p.scraped.Started
	p.facts.Connector, p.facts.FirstConnector = p.scraped.Connector, p.scraped.First
	all := make([]replica.Facts, 0, len(numbers))
	for _, n := range numbers {
		f, cache := p.facts, p.scraped.Ranks[n].Cache
		f.BlockSize = cache.BlockSize
		f.Blocks = cache.Blocks
		f.CacheDType = cache.DType
		f.PrefixCaching = cache.PrefixCaching
		f.Events = p.events[n]
		all = append(all, f)
	}
	return all
}

// EventSource turns an address from /kv_event_sources into one that can be dialed. host, from the server's
// URL, replaces a wildcard.
func EventSource(host, endpoint, replay, topic string) replica.EventSource {
	return replica.EventSource{Endpoint: dialable(host, endpoint), Replay: dialable(host, replay), Topic: topic}
}

func dialable(host, endpoint string) string {
	bound, ok := strings.CutPrefix(endpoint, "tcp://")
	colon := strings.LastIndexByte(bound, ':')
	if !ok || colon < 0 {
		return endpoint
	}
	switch name := strings.Trim(bound[:colon], "[]"); cmp.Or(name, "*") {
	case "*", "0.0.0.0", "::":
		return "tcp://" + net.JoinHostPort(host, bound[colon+1:])
	}
	return endpoint
}
