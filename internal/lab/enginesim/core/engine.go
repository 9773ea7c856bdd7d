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

// LoadPolicy is vLLM's kv_load_failure_policy: what becomes of a request whose remote KV could not be read.
type LoadPolicy uint8

// The policies. Fail is vLLM's default.
const (
	Fail      LoadPolicy = iota // the request ends with an error
	Recompute                   // the request prefills its prompt itself
)

// Set reads the policy from vLLM's word for it.
func (p *LoadPolicy) Set(word string) error {
	switch word {
	case "fail":
		*p = Fail
	case "recompute":
		*p = Recompute
	default:
		return fmt.Errorf("%q: want fail or recompute", word)
	}
	return nil
}

// Config says what an Engine is. The zero value is a small engine that takes no time.
type Config struct {
	BlockSize        int // tokens a block, default 16
	Blocks           int // num_gpu_blocks with the null block, default 8192
	MaxModelLen      int // tokens of prompt and output, default and at most what the pool holds
	MaxBatchedTokens int // tokens a step, default 8192
	MaxSeqs          int // requests in the batch, default 256
	// Of the model; decides how far beyond the pool a block id still reads garbage, default 32.
	Layers int
	// --tensor-parallel-size, default 1, and the KV heads of the model, default 8. Each rank holds its share of
	// the heads; with more ranks than heads, some hold the same ones.
	TensorParallel, KVHeads int

	Vocab      int // token ids are below it, default 2048
	FirstToken int // generated ids are from here on, default 0
	EOS        int // id that ends a text, 0 none
	EOSEvery   int // a token in so many is EOS, 0 never

	Weights  string // identity of the weights: engines with the same one give the same text
	HashSeed string // PYTHONHASHSEED: engines with different ones name the same block differently

	Cost       Cost          // time of a step; zero takes none
	Pace       Pace          // the same, in the place of Cost; nil for none
	Lease      time.Duration // how long P keeps blocks for its peer, default 30 s
	LoadPolicy LoadPolicy
	NoLoad     bool // what a decode leg's params name is neither loaded nor counted: the prompt is computed here
	Push       bool // NixlPushConnector: P writes into D's blocks
	Mooncake   bool // MooncakeConnector: the same, by transfer ids; Lease is its time-out, default 480 s
	Role       Role // kv_role; only Mooncake looks at it
	// Prompt tokens that a prefill leaves to decode: 1 with Mamba layers, drafts less 1 with MTP modules.
	Withhold int
	NoEvents bool // no KV events: --kv-events-config unset

	Groups []Group // KV cache groups of a hybrid model, in the engine's order; nil: full attention alone
	// Thin groups keep every block that they computed until it is evicted, as before vLLM had
	// prefix_cache_retention_interval. Such blocks take memory from those of full attention.
	Retain bool

	Speculative int // tokens drafted for each sequence and step; any number of drafts is accepted

	// Prefills tell which registration of the KV memory their blocks are in, and reads heed it, as since vLLM
	// 0.33.
	Registrations bool

	NoPrefixCaching bool // --no-enable-prefix-caching: nothing is kept, and nothing is announced
	Tier            Tier // host memory for KV; the zero value is none

	EngineID string // default "sim"
	Host     string // side channel as told to peers, default 127.0.0.1
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
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.EngineID = cmp.Or(c.EngineID, "sim")
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	c.Port = cmp.Or(c.Port, 5600)
	return c
}

// Request is one sequence to generate. The engine copies what it keeps, except Transfer, which it takes over
// and, as vLLM does, changes.
type Request struct {
	ID            string   // vLLM's internal id, unique on this engine
	Prompt        []uint32 // at least one token, less than MaxModelLen
	MaxTokens     int      // 0: as many as fit
	MinTokens     int      // EOS and StopIDs are not drawn before
	StopIDs       []uint32
	IgnoreEOS     bool
	Salt          string // cache_salt
	LoRA          string // adapter's name
	Weights       string // which it has, where they are not what every engine has under that name
	Session       string // accepted; events do not carry it
	SkipReadCache bool   // prompt_logprobs: computes the whole prompt
	Seed          uint64 // 0 is greedy; another one is another text

	// logit_bias: the largest of 10 or more is always drawn, those of -10 or less never, others change nothing.
	Bias    map[uint32]float64
	Allowed []uint32 // allowed_token_ids: nothing else is drawn; nil for all
	Choices int      // n of the client's request, told once for all its sequences; 0 otherwise
	// Structured outputs: the answer is one of the scripts, and ends with it. Not empty; nil without structured
	// outputs.
	Scripts [][]uint32

	Transfer *Transfer
}

// Reason says why a request ended.
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

// Output is one token of one request, or its end without one.
type Output struct {
	ID       string
	Token    uint32 // nothing when Reason is FinishError
	First    bool   // first token of the request
	Finished bool
	Reason   Reason // of the end, when Finished
	Stopped  bool   // Token is one of the request's StopIDs: vLLM's stop_reason
	Prompt   int    // tokens of the prompt
	Out      int    // tokens generated up to now
	// Prompt tokens not computed, as usage tells it; on D with remote_prefill_cached_tokens that is P's number.
	Cached int
	Err    error // with FinishError
	Params *TransferOut
}

// Step is what one scheduler step did. Its slices, and what they point to, belong to the engine and hold
// until the next call of Step, whichever other method is called meanwhile.
//
// Orders are for now. The step ends at now+Took: outputs and events go out then, and the next step starts
// then, at the earliest. With Idle nothing was done and nothing will be until another method is called or
// Wake is reached. A step can be Idle and still carry Orders, Outputs and Events.
type Step struct {
	Took    time.Duration
	Outputs []Output
	Events  []kv.Event
	Orders  []Order
	Idle    bool
	// When Step has to be called at the latest (a lease ends, a heartbeat is due), 0 for never.
	Wake time.Duration

	Prefill, Decode int // prompt tokens computed, sequences that made one more token
}

// Errors of Add.
var (
	ErrDead      = errors.New("engine core is dead")
	ErrDuplicate = errors.New("request id in use")
	ErrLength    = errors.New("prompt is empty or does not fit the model's length")
)

// Engine is one vLLM engine core. It is not safe for concurrent use, starts no goroutine and reads no clock:
// now is any time that never goes back.
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

// queues is the requests that are scheduled, in their order.
type queues struct {
	running []*request
	waiting queue
}

// seeds is where hashes begin.
type seeds struct {
	root uint64 // of KV contents: the weights
	none uint64 // of block hashes: vLLM's NONE_HASH
}

// engineLife is how often the process was restarted, and whether it lives or sleeps.
type engineLife struct {
	gen   int // restarts
	dead  error
	sleep sleeping
}

// knownRequests is every request that the engine knows.
type knownRequests struct {
	reqs map[string]*request // every request that did not end
	held map[string]*request // ended, but their blocks wait for a peer: leased and unread ones
	seq  uint64
}

// remoteLoads is the requests whose KV comes from a peer, and how far they are.
type remoteLoads struct {
	loading  []*request // vLLM's kv_holding_waiting: remote KV on the way or there, or lost
	leaked   int        // lost requests whose client left: their blocks never come back
	toStart  int        // waiting requests whose load did not start
	arrived  int        // loading requests in state loaded
	failures int        // failed loads of requests that end with an error
}

// leasing is what is kept for peers, and what peers keep for us.
type leasing struct {
	leases   int           // held requests in state leased
	leaseMin time.Duration // no lease ends before
	beating  int           // requests whose lease on the peer is renewed
	nextBeat time.Duration
	cleanups []*Transfer // of requests that ended before their load: the peer is told
	pushing  pushing
	mooncake mooncake
}

// engineTurn is the step that is being made.
type engineTurn struct {
	scheduled []*request // of this step
	batch     Batch      // the same, for a Pace
	hits      []int32    // of the lookup in progress
	beside    []int32    // the same, of the thin groups
	step      Step
	now       time.Duration // of this step
	posting   time.Duration // of descriptors, in this step
}

// counted is what /metrics tells.
type counted struct {
	counts  Counters
	unheard uint64 // late words of peers that no step has counted yet
	seen    [families]Histogram
}

// memory is the ended requests that lend their memory to new ones.
type memory struct {
	ended []*request // memory to be used again from the next step on
	spare []*request
}

// New makes an engine with an empty cache.
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
	e.bootHistograms()
}

// Config is the configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// EngineID is the id that peers shake hands with; a restart changes it.
func (e *Engine) EngineID() string {
	if e.life.gen == 0 {
		return e.cfg.EngineID
	}
	return fmt.Sprintf("%s-%d", e.cfg.EngineID, e.life.gen)
}

// Dead says why the engine core died, nil while it lives. A dead engine does nothing more: every request on
// it is lost.
func (e *Engine) Dead() error { return e.life.dead }

// Restart is a new process in the place of the old one: everything is lost, the counters too, and the engine
// id is another.
func (e *Engine) Restart() {
	e.life.gen++
	e.boot()
}

// SetCost changes the time that steps take.
func (e *Engine) SetCost(c Cost) { e.cfg.Cost = c }

// SetLease changes Config.Lease for leases that begin or are renewed from now on.
func (e *Engine) SetLease(d time.Duration) { e.cfg.Lease = d }

// SetNoLoad changes Config.NoLoad for requests that come from now on.
func (e *Engine) SetNoLoad(off bool) { e.cfg.NoLoad = off }

func (e *engineLife) die(format string, args ...any) {
	if e.dead == nil {
		e.dead = fmt.Errorf(format, args...)
	}
}
