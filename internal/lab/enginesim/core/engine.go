// Package core is vLLM's engine core without a model: a scheduler, a block pool, the NIXL connector and a
// cost model, in virtual time.
package core

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Config describes an Engine. The zero value is a small engine whose steps take no time.
type Config struct {
	BlockSize        int // tokens per block, default 16
	Blocks           int // num_gpu_blocks, including the null block, default 8192
	MaxModelLen      int // tokens of prompt and output; the default and the maximum are the pool's capacity
	MaxBatchedTokens int // tokens per step, default 8192
	MaxSeqs          int // requests per batch, default 256
	// Layers of the model, default 32. A read beyond the pool returns garbage until the last layer's end.
	Layers int
	// --tensor-parallel-size, default 1, and the KV heads of the model, default 8. The ranks share the heads.
	// If there are more ranks than heads, several ranks hold the same head.
	TensorParallel, KVHeads int

	Vocab      int // token ids are less than Vocab, default 2048
	FirstToken int // smallest generated id, default 0
	EOS        int // id that ends a text; 0: none
	EOSEvery   int // one token in EOSEvery is EOS; 0: never

	Weights  string // identity of the weights: engines with equal Weights generate equal texts
	HashSeed string // PYTHONHASHSEED: engines with different seeds give the same block different hashes

	Cost       Cost          // time of a step; zero: steps take no time
	Pace       Pace          // replaces Cost, if not nil
	Lease      time.Duration // how long P keeps blocks for D, default 30 s
	LoadPolicy LoadPolicy
	NoLoad     bool   // blocks named by a decode leg's params are not loaded or counted: D computes the prompt
	Push       bool   // NixlPushConnector: P writes into D's blocks
	Mooncake   bool   // MooncakeConnector: P writes, by transfer ids; Lease is its time-out, default 480 s
	MoRIIO     MoRIIO // MoRIIOConnector and its mode; Lease is its defer_timeout, default 60 s
	Role       Role   // kv_role; only Mooncake and MoRI-IO read it
	// The data-parallel rank, among DPSize ranks; Port is that of rank 0 plus Rank.
	Rank, DPSize int
	// Prompt tokens that a prefill leaves to decode: 1 with Mamba layers, one less than the drafts with MTP
	// modules.
	Withhold int
	NoEvents bool // --kv-events-config is not set

	Groups []Group // KV cache groups of a hybrid model, in the engine's order; nil: full attention only
	// Thin groups keep every computed block until eviction, as vLLM did before
	// prefix_cache_retention_interval. These blocks take memory from full attention.
	Retain bool

	Speculative int // tokens drafted per sequence and step; the number of accepted drafts varies

	// Prefills report the registration of their KV memory, and reads check it, as in vLLM 0.33 and later.
	Registrations bool

	NoPrefixCaching bool // --no-enable-prefix-caching: no block is cached or announced
	Tier            Tier // host memory for KV; zero value: none
	P2P             bool // host memory has a P2P tier: engines pull blocks from each other

	EngineID string // default "sim"
	Host     string // side channel's address for peers, default 127.0.0.1
	Port     int    // default 5600
}

func (c Config) withDefaults() Config {
	c.BlockSize = cmp.Or(c.BlockSize, 16)
	c.Blocks = max(2, cmp.Or(c.Blocks, 8192))
	room := (c.Blocks - 1) * c.BlockSize
	c.MaxModelLen = min(cmp.Or(c.MaxModelLen, room), room)
	c.MaxBatchedTokens = cmp.Or(c.MaxBatchedTokens, 8192)
	c.MaxSeqs = cmp.Or(c.MaxSeqs, 256)
	c.Layers = cmp.Or(c.Layers, 32)
	c.TensorParallel = max(1, c.TensorParallel)
	c.KVHeads = cmp.Or(c.KVHeads, 8)
	c.Vocab = cmp.Or(c.Vocab, 2048)
	c.FirstToken = min(c.FirstToken, c.Vocab-1)
	if c.Mooncake {
		c.Lease = cmp.Or(c.Lease, 480*time.Second)
	}
	if c.MoRIIO != 0 {
		c.Lease = cmp.Or(c.Lease, 60*time.Second)
	}
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.EngineID = cmp.Or(c.EngineID, "sim")
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	c.Port = cmp.Or(c.Port, 5600)
	return c
}

// Request is one sequence to generate. The engine copies what it keeps. The exception is Transfer: the engine
// takes it over and changes it, as vLLM does.
type Request struct {
	ID            string   // vLLM's internal id, unique on this engine
	Prompt        []uint32 // at least one token, less than MaxModelLen
	MaxTokens     int      // 0: up to MaxModelLen
	MinTokens     int      // EOS and StopIDs are not drawn before MinTokens tokens
	StopIDs       []uint32
	IgnoreEOS     bool
	Salt          string // cache_salt
	LoRA          string // name of the adapter
	Weights       string // the adapter's weights, if they differ from other engines' weights under that name
	Session       string // accepted; events do not contain it
	SkipReadCache bool   // prompt_logprobs: the whole prompt is computed
	Seed          uint64 // 0: greedy; each other seed gives another text

	// logit_bias. The largest bias of 10 or more is always drawn. Biases of -10 or less are never drawn.
	// Other biases have no effect.
	Bias    map[uint32]float64
	Allowed []uint32 // allowed_token_ids: the only ids that are drawn; nil: all
	Choices int      // n of the client's request, set on its first sequence only; 0 on the others
	// Structured outputs: the answer is exactly one of the scripts, which are not empty. nil: no structured
	// outputs.
	Scripts [][]uint32

	Transfer *Transfer
}

// Reason is why a request ended.
type Reason uint8

// The reasons, as in vLLM's finished_reason label.
const (
	NotFinished Reason = iota
	FinishStop
	FinishLength
	FinishAbort
	FinishError
	reasons
)

func (r Reason) String() string {
	return [...]string{"", "stop", "length", "abort", "error"}[r]
}

// Output is one token of one request, or the end of a request without a token.
type Output struct {
	ID       string
	Token    uint32 // unset if Reason is FinishError
	First    bool   // first token of the request
	Finished bool
	Reason   Reason // why the request ended, if Finished
	Stopped  bool   // Token is one of the request's StopIDs (vLLM's stop_reason)
	Prompt   int    // tokens of the prompt
	Out      int    // tokens generated so far
	// usage's cached_tokens: prompt tokens that were not computed. On D, remote_prefill_cached_tokens
	// replaces it.
	Cached int
	Err    error // with FinishError
	Params *TransferOut
}

// Step is the result of one scheduler step. Its slices, and what they point to, belong to the engine and are
// valid until the next call of Step. Calls of other methods leave them valid.
//
// The driver carries Orders out at once. The step ends at now+Took: the driver then delivers outputs and
// events, and may start the next step. If Idle, the step did nothing, and the next step will do nothing
// before another method is called or Wake is reached. An Idle step may still have Orders, Outputs and Events.
type Step struct {
	Took    time.Duration
	Outputs []Output
	Events  []kv.Event
	Orders  []Order
	Idle    bool
	// Latest time for the next call of Step (a lease ends, a heartbeat is due), 0 for never.
	Wake time.Duration

	Prefill, Decode int // prompt tokens computed, sequences that generated a token
}

// Errors of Add.
var (
	ErrDead      = errors.New("engine core is dead")
	ErrDuplicate = errors.New("request id in use")
	ErrLength    = errors.New("prompt is empty or does not fit the model's length")
)

// Engine is one vLLM engine core. It is not safe for concurrent use. It starts no goroutine and reads no
// clock: callers pass any now that never decreases.
type Engine struct {
	cfg   Config
	seeds seeds
	life  engineLife

	groups groups
	pool   pool
	known  knownRequests

	queues queues
	loads  remoteLoads

	leasing leasing

	turn    engineTurn
	counted counted

	memory memory
}

// queues holds the requests to schedule, in their order.
type queues struct {
	running []*request
	waiting queue
}

// seeds holds the initial values of hashes.
type seeds struct {
	root uint64 // of KV contents: the weights
	none uint64 // of block hashes: vLLM's NONE_HASH
}

// engineLife counts restarts, and says whether the process is alive, dead or asleep.
type engineLife struct {
	gen   int // restarts
	dead  error
	sleep sleeping
}

// knownRequests holds every request that the engine knows.
type knownRequests struct {
	reqs map[string]*request // requests that have not ended
	held map[string]*request // ended requests whose blocks wait for a peer: leased and unread
	seq  uint64
}

// remoteLoads counts the requests whose KV comes from a peer, by stage.
type remoteLoads struct {
	loading  []*request // vLLM's kv_holding_waiting: states loading, loaded and lost
	leaked   int        // lost requests whose client disconnected: their blocks are never freed
	toStart  int        // waiting requests whose load has not started
	arrived  int        // loading requests in state loaded
	failures int        // failed loads whose requests will end with an error
}

// leasing holds leases for peers, and renewals of the leases that peers hold for this engine.
type leasing struct {
	leases   int           // held requests in state leased
	leaseMin time.Duration // no lease ends before this time
	beating  int           // requests whose lease on the peer gets heartbeats
	nextBeat time.Duration
	cleanups []*Transfer // of requests that ended before their load; their peers get a notification
	pushing  pushing
	mooncake mooncake
	moriio   moriio
}

// engineTurn is the step in progress.
type engineTurn struct {
	scheduled []*request // in this step
	batch     Batch      // the scheduled chunks, for a Pace
	hits      []int32    // blocks found by the lookup in progress
	beside    []int32    // blocks of thin groups found by that lookup
	step      Step
	now       time.Duration // start of this step
	posting   time.Duration // time to post descriptors in this step
}

// counted holds what /metrics reports.
type counted struct {
	counts  Counters
	unheard uint64 // late notifications of peers that no step has counted yet
	seen    [families]Histogram
}

// memory reuses the structs of ended requests.
type memory struct {
	ended []*request // reusable from the next step on
	spare []*request
}

// New returns an engine with an empty cache.
func New(c Config) *Engine {
	e := &Engine{cfg: c.withDefaults()}
	e.boot()
	return e
}

func (e *Engine) boot() {
	*e = Engine{cfg: e.cfg, life: engineLife{gen: e.life.gen, sleep: sleeping{registration: 1}}}
	e.seeds.root = mixString(contentSeed, e.cfg.Weights)
	e.seeds.none = mixString(hashSeed, e.cfg.HashSeed)
	e.groups = newGroups(&e.cfg)
	e.pool.init(e.cfg)
	e.pool.tier = newTier(&e.cfg)
	e.known.reqs = make(map[string]*request)
	e.known.held = make(map[string]*request)
	e.leasing.mooncake.sends = make(map[string]*sending)
	e.leasing.moriio = moriio{make(map[string]*request), make(map[string]bool), newWrites()}
	e.bootHistograms()
}

// Config returns the configuration, defaults included.
func (e *Engine) Config() Config { return e.cfg }

// EngineID is the id that peers use in the handshake. A restart changes it, except with MoRI-IO.
func (e *Engine) EngineID() string {
	if e.cfg.MoRIIO != 0 {
		return fmt.Sprintf("%s:%d", e.cfg.Host, e.cfg.Port-e.cfg.Rank)
	}
	if e.life.gen == 0 {
		return e.cfg.EngineID
	}
	return fmt.Sprintf("%s-%d", e.cfg.EngineID, e.life.gen)
}

// Dead returns the cause of the engine core's death, nil while the core is alive. A dead engine does nothing:
// all its requests are lost.
func (e *Engine) Dead() error { return e.life.dead }

// Restart replaces the process by a new one. Requests, cache and counters are lost, and the engine id
// changes.
func (e *Engine) Restart() {
	e.life.gen++
	e.boot()
}

// SetCost changes the cost of steps.
func (e *Engine) SetCost(c Cost) { e.cfg.Cost = c }

// SetLease changes Config.Lease for leases that begin or are renewed after the call.
func (e *Engine) SetLease(d time.Duration) { e.cfg.Lease = d }

// SetNoLoad changes Config.NoLoad for requests that arrive after the call.
func (e *Engine) SetNoLoad(off bool) { e.cfg.NoLoad = off }

func (e *engineLife) die(format string, args ...any) {
	if e.dead == nil {
		e.dead = fmt.Errorf(format, args...)
	}
}
