package engine

import (
	"bytes"
	"errors"
	"math"

	"github.com/tandem-router/tandem/internal/replica"
)

// Metrics is what one scrape of /metrics says.
type Metrics struct {
	// By data-parallel rank, for ranks with any known metric; ParseMetrics leaves At to its caller.
	Loads     map[int]replica.Load
	Ranks     map[int]Rank // the rest, by the same ranks
	Started   float64      // process start, unix seconds, 0 unknown
	Asleep    bool         // it is in vLLM's sleep mode: it lives, and computes nothing until it is woken
	Connector string       // by the series on the page, "nixl" first, as in [connectors]; "" for none
	// The connector whose counters come first, where the page has those of several: the first child of a
	// MultiConnector. "" unknown.
	First string
}

// Rank is the facts that /metrics contains about one data-parallel rank besides its load.
type Rank struct {
	Cache    Cache
	Counters Counters
}

// Cache is the KV cache of one rank. Zero means unknown.
type Cache struct {
	BlockSize     int // tokens
	Blocks        int // usable blocks of this rank, without the null block
	DType         string
	PrefixCaching bool
}

// Counters only grow while a process lives. NaN means unknown.
type Counters struct {
	ExternalHits        float64 // tokens that came through the KV connector
	NIXLFailedTransfers float64
	// Leases that ended unread; reads of a lease that was gone: wrong text is possible.
	NIXLExpired, NIXLAfterExpiry float64
}

// ErrNoMetrics is a text without a single series of vLLM's.
var ErrNoMetrics = errors.New("no vllm series")

// ParseMetrics reads the Prometheus text of an engine, old names and new, series without an engine label as
// rank 0. Lines that are not ours cost no allocation; a line of ours that cannot be read counts as absent.
func ParseMetrics(body []byte) (Metrics, error) {
	var p parser
	text := body
	for len(body) > 0 {
		line := body
		if end := bytes.IndexByte(body, '\n'); end >= 0 {
			line, body = body[:end], body[end+1:]
		} else {
			body = nil
		}
		if len(line) > 0 && (line[0] == 'v' || line[0] == 'p') {
			p.line(line)
		}
	}
	if len(p.ranks) == 0 && isHTML(text) {
		return Metrics{}, &NotVLLMError{Path: "/metrics", HTML: true, Err: ErrNoMetrics}
	}
	if len(p.ranks) == 0 {
		return Metrics{}, ErrNoMetrics
	}
	return p.metrics(), nil
}

type parser struct {
	ranks   []rankLines // few: searched in line
	started float64
	asleep  bool
	shown   shown
}

// rankLines is the values read for one rank.
type rankLines struct {
	number   int
	load     replica.Load
	oldUsage float64 // by its old name
	rank     Rank
	fetching int // requests whose remote KV is on its way, -1 unknown
	fetched  int // requests whose remote KV has arrived, and which wait to run, -1 unknown
	blocks   int // num_gpu_blocks: the sum over ranks
	tokens   int // kv_cache_size_tokens: of one rank
	drafts   float64
	drafted  float64 // tokens of the drafts
}

func (p *parser) rank(number int) *rankLines {
	for i := range p.ranks {
		if p.ranks[i].number == number {
			return &p.ranks[i]
		}
	}
	nan := math.NaN()
	p.ranks = append(p.ranks, rankLines{
		number: number, load: replica.NoLoad(), oldUsage: nan, fetching: -1, fetched: -1,
		rank: Rank{Counters: Counters{nan, nan, nan, nan}},
	})
	return &p.ranks[len(p.ranks)-1]
}

// sample is one line: name{labels} value.
type sample struct {
	labels labels
	value  float64
}

// line reads a line whose name may be one of the known series.
func (p *parser) line(line []byte) {
	end := bytes.IndexAny(line, "{ ")
	if end < 0 {
		return
	}
	name := line[:end]
	if string(name) == "process_start_time_seconds" {
		if s, ok := readSample(line[end:]); ok && s.value > 0 {
			p.started = s.value
		}
		return
	}
	name, ok := bytes.CutPrefix(name, []byte("vllm:"))
	if !ok {
		return
	}
	p.shown.look(name)
	if !ours(name) {
		return
	}
	if s, ok := readSample(line[end:]); ok {
		p.series(name, s)
	}
}

func ours(name []byte) bool {
	switch string(name) {
	case "num_requests_running", "num_requests_waiting", "num_requests_kv_fetch_by_stage",
		"kv_cache_usage_perc", "gpu_cache_usage_perc", "cache_config_info",
		"spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
		"external_prefix_cache_hits_total", "engine_sleep_state", "nixl_num_failed_transfers_total",
		"nixl_num_kv_expired_reqs_total", "nixl_num_notifications_after_expiry_total",
		"nixl_xfer_time_seconds_count", "nixl_xfer_time_seconds_sum", "nixl_post_time_seconds_sum",
		"nixl_bytes_transferred_sum":
		return true
	}
	return false
}

// series stores one sample of ours.
//
// Long: a case a series.
func (p *parser) series(name []byte, s sample) {
	number, ok := s.labels.rank()
	if !ok {
		return
	}
	r := p.rank(number)
	c := &r.rank.Counters
	switch string(name) {
	case "num_requests_running":
		setCount(&r.load.Running, s.value)
	case "num_requests_waiting":
		setCount(&r.load.Waiting, s.value)
	case "kv_cache_usage_perc":
		setShare(&r.load.Usage, s.value)
	case "gpu_cache_usage_perc":
		setShare(&r.oldUsage, s.value)
	case "num_requests_kv_fetch_by_stage":
		r.setStage(s)
	case "cache_config_info":
		r.setCache(s.labels)
	case "spec_decode_num_drafts_total":
		r.drafts = s.value
	case "spec_decode_num_draft_tokens_total":
		r.drafted = s.value
	case "external_prefix_cache_hits_total":
		c.ExternalHits = s.value
	case "engine_sleep_state":
		p.asleep = p.asleep || s.value == 0 && string(s.labels.get("sleep_state")) == "awake"
	case "nixl_num_failed_transfers_total":
		c.NIXLFailedTransfers = s.value
	case "nixl_num_kv_expired_reqs_total":
		c.NIXLExpired = s.value
	case "nixl_num_notifications_after_expiry_total":
		c.NIXLAfterExpiry = s.value
	case "nixl_xfer_time_seconds_count":
		r.load.Reads.Count = s.value
	case "nixl_xfer_time_seconds_sum":
		r.load.Reads.Seconds = s.value
	case "nixl_post_time_seconds_sum":
		r.load.Reads.Posting = s.value
	case "nixl_bytes_transferred_sum":
		r.load.Reads.Bytes = s.value
	}
}

func (r *rankLines) setStage(s sample) {
	switch string(s.labels.get("stage")) {
	case "in_progress":
		setCount(&r.fetching, s.value)
	case "completed_waiting":
		setCount(&r.fetched, s.value)
	}
}

func (r *rankLines) setCache(l labels) {
	c := &r.rank.Cache
	for key, value := range l.all {
		switch string(key) {
		case "block_size":
			c.BlockSize = number(value)
		case "num_gpu_blocks":
			r.blocks = number(value)
		case "kv_cache_size_tokens":
			r.tokens = number(value)
		case "cache_dtype":
			c.DType = string(value)
		case "enable_prefix_caching":
			c.PrefixCaching = string(value) == "True"
		}
	}
}

// usable is how many blocks the rank can give out. num_gpu_blocks is the sum over the ranks of a server,
// kv_cache_size_tokens is one rank's; both count the null block, which is never given out. The tokens are
// rounded down to whole requests of the longest length and to whole tokens (v1/core/kv_cache_utils.py,
// get_kv_cache_capacity). So they are some blocks too few for most lengths. Where they are far from the mean
// of the ranks, several groups of layers share the blocks. Then the tokens are what fits.
func (r *rankLines) usable(ranks int) int {
	blocks := r.blocks / ranks
	if r.tokens > 0 && r.rank.Cache.BlockSize > 0 {
		if fits := r.tokens / r.rank.Cache.BlockSize; fits > blocks || fits < blocks-blocks/8-1 {
			blocks = fits
		}
	}
	return max(blocks-1, 0)
}

func (p *parser) metrics() Metrics {
	m := Metrics{
		Loads:   make(map[int]replica.Load, len(p.ranks)),
		Ranks:   make(map[int]Rank, len(p.ranks)),
		Started: p.started, Asleep: p.asleep, Connector: p.shown.connector(), First: p.shown.firstOf(),
	}
	for i := range p.ranks {
		r := &p.ranks[i]
		r.rank.Cache.Blocks = r.usable(len(p.ranks))
		m.Ranks[r.number] = r.rank
		if math.IsNaN(r.load.Usage) {
			r.load.Usage = r.oldUsage
		}
		if r.fetching >= 0 {
			r.load.Loading, r.load.Fetching = r.fetching+max(r.fetched, 0), r.fetching
		}
		if r.drafts > 0 { // a draft belongs to one sequence in one step
			r.load.Drafts = int(math.Ceil(r.drafted / r.drafts))
		}
		if r.load.Running >= 0 || r.load.Waiting >= 0 || !math.IsNaN(r.load.Usage) {
			r.load.Source = replica.Metrics
			m.Loads[r.number] = r.load
		}
	}
	return m
}
