// Package config is the configuration file: its schema, its defaults, its checks, the watch over it, and the
// changes that a new file makes.
package config

// Long: the schema is read in one piece, a struct a section of the file.

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config is the whole file. A value is complete: [Default] filled what the file leaves out, [Config.Validate]
// found no contradiction. Treat it as immutable once it has been parsed: requests in flight keep the one they
// started with.
type Config struct {
	Listen    string    `yaml:"listen"`    // address of the front listener; needs a restart
	Admin     Admin     `yaml:"admin"`     // the listener for people and scrapers
	TLS       ServerTLS `yaml:"tls"`       // of the front listener; to begin or to end with it needs a restart
	CORS      CORS      `yaml:"cors"`      // web pages that may ask the front listener
	APIKeys   []Secret  `yaml:"api_keys"`  // client keys without names, see [Config.ClientKeys]
	Keys      []Key     `yaml:"keys"`      // client keys
	KeysFile  string    `yaml:"keys_file"` // a file with more client keys, which holds hashes only
	Isolation Isolation `yaml:"isolation"` // of tenants
	Classes   []Class   `yaml:"classes"`   // of requests, by default the most urgent first
	Aliases   []Alias   `yaml:"aliases"`   // names for models that clients may use
	Pools     Pools     `yaml:"pools"`     // the two pools
	Discovery Discovery `yaml:"discovery"` // where more replicas, and other routers, are found
	Connector Connector `yaml:"connector"` // how KV moves between them
	Local     string    `yaml:"local"`     // auto | never | always: may decode replicas prefill by themselves
	Scoring   Scoring   `yaml:"scoring"`   // the arithmetic of a decision
	Tokenizer Tokenizer `yaml:"tokenizer"` // text to token ids
	Limits    Limits    `yaml:"limits"`    // limits beyond which requests are refused
	Timeouts  Timeouts  `yaml:"timeouts"`  // every phase has one
	Retry     Retry     `yaml:"retry"`     // second attempts before the first byte, and going on behind it
	Health    Health    `yaml:"health"`    // when a replica is not used
	Routers   Routers   `yaml:"routers"`   // other Tandems in front of the same engines
	Response  Response  `yaml:"response"`  // what clients see of us
	// Answers for requests that ask the same again.
	AnswerCache AnswerCache `yaml:"answer_cache"`
	// Spans; the OTEL_* environment decides where this is empty; needs a restart.
	Tracing   Tracing   `yaml:"tracing"`
	Log       Log       `yaml:"log"`       // our own log
	Decisions Decisions `yaml:"decisions"` // the record of decisions
	State     State     `yaml:"state"`     // learned numbers, for the next process
	Usage     Usage     `yaml:"usage"`     // what client keys have used

	Experimental Experimental `yaml:"experimental"` // settings for comparisons only

	FileKeys []Key `yaml:"-"` // of KeysFile, from [Load]
}

// Isolation keeps tenants apart.
type Isolation struct {
	// A secret from which each tenant gets its own cache_salt: prompts match blocks of their own tenant only.
	Salt Secret `yaml:"salt"`
}

// Usage is the file of what client keys have used.
type Usage struct {
	File string `yaml:"file"` // a JSON line an hour for each key and model; empty: none
}

// Admin is the listener for metrics, reload, status and the live page.
type Admin struct {
	// Address, loopback by default: any client that reaches it can reload and profile; "off" for none; needs a
	// restart.
	Listen string `yaml:"listen"`
	// Host names in requests to it, besides addresses, localhost and the host of listen.
	Hosts []string `yaml:"hosts"`
	// what must be presented as a bearer token; empty trusts every client that reaches it
	Token Secret `yaml:"token"`
}

// ServerTLS makes the front listener speak TLS. Both files or neither. They are read again when they change.
type ServerTLS struct {
	Cert string `yaml:"cert"` // PEM file, the chain
	Key  string `yaml:"key"`  // PEM file
}

// Enabled reports whether the listener speaks TLS.
func (t ServerTLS) Enabled() bool { return t.Cert != "" || t.Key != "" }

// Pools are the two sides of the fleet. A pool may be empty: then the orchestrator starts, and is not ready.
type Pools struct {
	Prefill Pool `yaml:"prefill"`
	Decode  Pool `yaml:"decode"`
}

// Pool is one side: its replicas and the settings that all its replicas share.
type Pool struct {
	Replicas []Replica `yaml:"replicas"`
	APIKey   Secret    `yaml:"api_key"` // sent to the engines as a bearer token
	TLS      ClientTLS `yaml:"tls"`     // for https replicas
	// events | approximate | off: how it is known which replica has which blocks.
	Index string `yaml:"index"`
	// Tokens a KV block, where neither an engine's events nor the engine say.
	BlockSize int `yaml:"block_size"`
	Blocks    int `yaml:"blocks"` // KV blocks of a replica, where the engine does not say; 0 unknown
	// SpeculativeTokens is --speculative-config's num_speculative_tokens, where an engine's counters do not tell
	// yet; 0 none.
	SpeculativeTokens int `yaml:"speculative_tokens"`
	// Folders of LoRA adapters, as the engines see them. Adapters with equal paths behind them are the same.
	AdapterFolders []string `yaml:"adapter_folders"`

	PollInterval time.Duration `yaml:"poll_interval"` // between two scrapes of an engine's /metrics
	// Memory for the block index of the pool, text included; needs a restart.
	IndexBytes Bytes `yaml:"index_bytes"`
}

// AdapterRoot returns the path of an adapter in a form that can be compared: the part behind the longest of
// the folders that contains the path.
func (p *Pool) AdapterRoot(path string) string {
	rest := path
	for _, folder := range p.AdapterFolders {
		left, in := strings.CutPrefix(path, strings.TrimRight(folder, "/")+"/")
		if in && left != "" && len(left) < len(rest) {
			rest = left
		}
	}
	return rest
}

// What [Pool.Index] may be.
const (
	IndexEvents      = "events"      // follow the block events; an engine that publishes none is approximated
	IndexApproximate = "approximate" // no events; prompts sent to a replica count as cached there
	IndexOff         = "off"         // know nothing and match nothing
)

// Replica is one engine server. In the file a plain string is short for {url: string}.
type Replica struct {
	Name   string `yaml:"name"`  // in metrics, logs and headers; host:port of the URL where empty
	URL    string `yaml:"url"`   // http://host:port or https://host:port, no path
	Model  string `yaml:"model"` // that the engine is meant to serve; empty: any
	Place  Place  `yaml:"place"`
	Shared bool   `yaml:"shared"` // this URL stands in both pools on purpose; say so in both
	Events Events `yaml:"events"`
	Drain  bool   `yaml:"drain"` // no new requests; of a shared URL it holds for both pools
	// Replicas pair only if their revisions are equal; an empty revision pairs with any.
	Revision    string `yaml:"revision"`
	GatewayPort int    `yaml:"gateway_port"` // to which gateways send requests; 0 for the port of URL
	PullPort    int    `yaml:"p2p_port"`     // instead of connector.p2p_port
	// Instead of connector.bootstrap_port: engines of one host cannot share a bootstrap server.
	BootstrapPort int `yaml:"bootstrap_port"`
}

// ID is the name of the replica: Name, else host:port of URL.
func (r Replica) ID() string {
	if r.Name != "" {
		return r.Name
	}
	if u, err := url.Parse(r.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return r.URL
}

// Place is where a replica stands. The places of two replicas choose the link class between them. Empty is
// unknown, equal to nothing.
type Place struct {
	Host string `yaml:"host"`
	Rack string `yaml:"rack"`
	Zone string `yaml:"zone"`
}

// Events overrides what an engine says about its block events, where it cannot be asked or says it wrongly.
type Events struct {
	Endpoint string `yaml:"endpoint"` // PUB, tcp://host:port; rank r of a data-parallel server is at port+r
	Replay   string `yaml:"replay"`   // ROUTER, tcp://host:port; empty: no replay
	Topic    string `yaml:"topic"`
}

// At returns e with host in the place of the * in its addresses.
func (e Events) At(host string) Events {
	e.Endpoint = strings.Replace(e.Endpoint, "//*:", "//"+host+":", 1)
	e.Replay = strings.Replace(e.Replay, "//*:", "//"+host+":", 1)
	return e
}

// OfRank returns e for a data-parallel rank, by vLLM's rule: rank r publishes at the port plus r
// (distributed/kv_events.py, offset_endpoint_port).
func (e Events) OfRank(rank int) Events {
	e.Endpoint, e.Replay = offsetPort(e.Endpoint, rank), offsetPort(e.Replay, rank)
	return e
}

func offsetPort(endpoint string, rank int) string {
	at := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[at+1:])
	if err != nil || port == 0 {
		return endpoint
	}
	return endpoint[:at+1] + strconv.Itoa(port+rank)
}

// ClientTLS is how we speak TLS to engines.
type ClientTLS struct {
	CA                 string `yaml:"ca"`                   // PEM file; empty: the system's roots
	Cert               string `yaml:"cert"`                 // PEM file of our own certificate, with Key
	Key                string `yaml:"key"`                  // PEM file
	ServerName         string `yaml:"server_name"`          // expected name; empty: the host of the URL
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"` // believe any certificate
}

// Connector is the KV transfer protocol that the engines were started with.
type Connector struct {
	// nixl | nixl-push | mooncake | moriio | moriio-write | mooncake-store | lmcache | offloading
	Type  string        `yaml:"type"`
	Lease time.Duration `yaml:"lease"` // how long a prefill engine keeps blocks for a decode that has not come
	// Longest age of a prefill answer at which we still send the decode leg; below Lease.
	Margin time.Duration `yaml:"margin"`
	// Port where each engine lets other engines pull blocks (vLLM's P2P tier), less its data-parallel rank; 0:
	// no engine pulls.
	PullPort int `yaml:"p2p_port"`
	// Port of the bootstrap server of each prefill engine (VLLM_MOONCAKE_BOOTSTRAP_PORT).
	BootstrapPort int `yaml:"bootstrap_port"`
	// Ports at which every decode engine with MoRI-IO in WRITE mode listens (handshake_port and notify_port of
	// its --kv-transfer-config).
	HandshakePort int `yaml:"handshake_port"`
	NotifyPort    int `yaml:"notify_port"`
}

// What [Connector.Type] may be: blocks are pulled by the decode engine, pushed by the prefill engine, or lie
// in a store that all engines share.
const (
	NIXL          = "nixl"
	NIXLPush      = "nixl-push"
	Mooncake      = "mooncake"
	MoRIIO        = "moriio" // READ mode
	MoRIIOWrite   = "moriio-write"
	MooncakeStore = "mooncake-store"
	LMCache       = "lmcache"
	Offloading    = "offloading"
)

// What [Config.Local] may be.
const (
	LocalAuto   = "auto"   // where it is predicted to be faster
	LocalNever  = "never"  // requests that cannot be split are refused then
	LocalAlways = "always" // the prefill pool is not used
)

// Scoring sets the exchange rates and the figures that are used until they have been learned.
type Scoring struct {
	// Weight of prefill work saved by a prefix match: auto | number.
	Alpha Alpha   `yaml:"alpha"`
	Beta  float64 `yaml:"beta"`  // weight of the wait behind queued work
	Gamma float64 `yaml:"gamma"` // weight of KV pressure
	// Weight of the slow-down of requests already decoding there.
	DecodePenalty float64 `yaml:"decode_penalty"`
	// The longest compute time of one piece of a prompt on a decode replica beside streams; 0: the whole prompt.
	PrefillPiece time.Duration `yaml:"prefill_piece"`
	// Share of a decode replica's KV blocks that is never promised, 0..1.
	HeadroomMargin  float64 `yaml:"headroom_margin"`
	ExpectedOutput  int     `yaml:"expected_output"`    // tokens an answer is taken to have, until learned
	KVBytesPerToken Bytes   `yaml:"kv_bytes_per_token"` // what a transfer moves, if Models does not say
	Links           Links   `yaml:"links"`
	// What belongs to one of several models.
	Models []ScoringModel `yaml:"models"`
}

// ScoringModel is what belongs to one model.
type ScoringModel struct {
	Model           string `yaml:"model"` // base model, as engines serve it
	KVBytesPerToken Bytes  `yaml:"kv_bytes_per_token"`
}

// String says what the model has.
func (m ScoringModel) String() string {
	return fmt.Sprintf("%s (%v a token)", m.Model, m.KVBytesPerToken)
}

// Links is the bandwidth in bytes a second between two replicas by the class of their path, until it has been
// learned for the pair.
type Links struct {
	Host  Bytes `yaml:"host"`
	Rack  Bytes `yaml:"rack"`
	Zone  Bytes `yaml:"zone"`
	Other Bytes `yaml:"other"`
}

// Tokenizer turns text into token ids by asking the engines, and remembers.
type Tokenizer struct {
	Source     string `yaml:"source"`      // engines | none
	CacheBytes Bytes  `yaml:"cache_bytes"` // memory for remembered prompts; 0 remembers none
	// How long the ids of a chat are remembered; 0: no chat is.
	ChatTTL       time.Duration `yaml:"chat_ttl"`
	CharsPerToken float64       `yaml:"chars_per_token"` // for the estimate where no engine answers
	// Bytes of a chunk of text, to match prompts without ids; 0 matches none.
	ChunkBytes int `yaml:"chunk_bytes"`
}

// What [Tokenizer.Source] may be.
const (
	TokensEngines = "engines" // ask an engine, and remember
	TokensNone    = "none"    // no questions: prompts that come as text are matched as text
)

// Limits bounds what clients can make us hold.
type Limits struct {
	BodyBytes       Bytes `yaml:"body_bytes"`        // of a request
	HeaderBytes     Bytes `yaml:"header_bytes"`      // of a request head; needs a restart
	AnswerBytes     Bytes `yaml:"answer_bytes"`      // of an answer that is not streamed
	MaxPromptTokens int   `yaml:"max_prompt_tokens"` // 0: the engines' own limit
	BatchPrompts    int   `yaml:"batch_prompts"`     // prompts in one completions request
	Samples         int   `yaml:"samples"`           // answers that one request may ask for: n, best_of
	// Requests at once, waiting ones included; 0: no limit.
	InFlight int `yaml:"in_flight"`
	Queue    int `yaml:"queue"` // requests waiting for room at once
	// A request with a later predicted first token is refused with 429; 0: never.
	FirstToken time.Duration `yaml:"first_token"`
}

// Timeouts bounds each phase of a request. There is no limit on a whole stream.
type Timeouts struct {
	ReadHeader time.Duration `yaml:"read_header"` // client's request head; needs a restart
	ReadBody   time.Duration `yaml:"read_body"`   // client's request body
	Idle       time.Duration `yaml:"idle"`        // a client connection between two requests; needs a restart
	Tokenize   time.Duration `yaml:"tokenize"`    // one question to an engine's render or tokenize endpoint
	Queue      time.Duration `yaml:"queue"`       // wait for room; then 429
	Connect    time.Duration `yaml:"connect"`     // TCP and TLS to an engine
	Prefill    time.Duration `yaml:"prefill"`     // prefill leg: from sending it to its whole answer
	// Decode leg: from sending it to the first event; prefill too where it is local.
	DecodeFirst time.Duration `yaml:"decode_first"`
	DecodeIdle  time.Duration `yaml:"decode_idle"` // between two chunks of a stream
	// Decode leg of an answer that is not streamed: to its whole answer.
	Answer      time.Duration `yaml:"answer"`
	ClientWrite time.Duration `yaml:"client_write"` // one write to a client that does not read
	Unready     time.Duration `yaml:"unready"`      // at shutdown: readiness fails, new requests are served
	Drain       time.Duration `yaml:"drain"`        // then: streams may finish
	Probe       time.Duration `yaml:"probe"`        // one scrape or probe of an engine
}

// Retry bounds second attempts. An attempt from the beginning is possible only before the first byte to the
// client, and never after a 4xx.
type Retry struct {
	Attempts int     `yaml:"attempts"` // of one request, the first included; 1: none
	Share    float64 `yaml:"share"`    // of live requests that may be retries, 0..1
	Min      int     `yaml:"min"`      // retries at once that are always allowed
	// greedy | always | off: which streams go on elsewhere when their engine dies.
	Continue string `yaml:"continue"`
}

// What [Retry.Continue] may be.
const (
	ContinueGreedy = "greedy" // only answers with temperature 0: their rest is the same on every engine
	ContinueAlways = "always" // sampled answers too: their rest is drawn anew
	ContinueOff    = "off"
)

// Health is when a replica stops getting requests. A replica that refuses a connection stops at once. Both
// come back with their first good scrape.
type Health struct {
	Failures int      `yaml:"failures"` // failed scrapes in a row after which a replica is not used
	Ejection Ejection `yaml:"ejection"` // of replicas and pairs that fail requests
}

// Ejection says when a replica whose requests fail is kept out. A replica can be kept out of prefilling, of
// decoding, or of computing both alone, each by itself. A pair of replicas is kept out too if no blocks
// arrive over its path. At most half of the replicas that could serve a request are kept out.
type Ejection struct {
	Failures int `yaml:"failures"` // in a row; 0 turns ejection off
	// Of the last minute's requests that failed, 0..1; 0: failures in a row alone count.
	Share float64 `yaml:"share"`
	// From an ejection to the first trial, a request of the router's own; then twice as long each time.
	Base time.Duration `yaml:"base"`
	Max  time.Duration `yaml:"max"` // the longest time to a trial
}

// Routers are the other Tandems in front of the same engines. Each reports its bookings, of which the
// engines' reports show little.
type Routers struct {
	// http://host:port of the admin listener of each; a list that holds this one too does no harm.
	Peers []string `yaml:"peers"`
	// A server at which routers find each other, and hear at once what another one has booked.
	Valkey ValkeyServer `yaml:"valkey"`
}

// ValkeyServer is a Valkey or Redis server that routers share; none without addresses.
type ValkeyServer struct {
	Addresses []string  `yaml:"addresses"` // host:port; of a cluster or of sentinels, some of theirs
	Mode      string    `yaml:"mode"`      // single | cluster | sentinel
	Master    string    `yaml:"master"`    // the name that sentinels watch it by
	Username  string    `yaml:"username"`
	Password  Secret    `yaml:"password"`
	Secure    bool      `yaml:"secure"` // speak TLS
	TLS       ClientTLS `yaml:"tls"`
	Prefix    string    `yaml:"prefix"` // of all names and keys there
}

// defaultServer is the server of a configuration that names only its address.
var defaultServer = ValkeyServer{Mode: ValkeySingle, Prefix: "tandem:"}

// Response is what clients see of us.
type Response struct {
	Headers  bool `yaml:"headers"`  // x-tandem-* headers: decision id, mode, matched tokens
	Replicas bool `yaml:"replicas"` // x-tandem-prefill and x-tandem-decode: the names of the chosen replicas
}

// Tracing says where spans go. With an empty Exporter the OTEL_* environment variables decide; without them
// there are no spans.
type Tracing struct {
	Exporter string `yaml:"exporter"` // "" | otlp | stdout | file | none
	File     string `yaml:"file"`     // for file: a JSON line a span is appended
	Endpoint string `yaml:"endpoint"` // for otlp: URL of the collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT
	// Share of traces that we start which are kept, 0..1; OTEL_TRACES_SAMPLER wins.
	Sample float64 `yaml:"sample"`
}

// What [Tracing.Exporter] may be.
const (
	TraceEnv    = ""
	TraceOTLP   = "otlp"
	TraceStdout = "stdout"
	TraceFile   = "file"
	TraceNone   = "none"
)

// Log is our own log, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // text | json; needs a restart
	Access bool   `yaml:"access"` // a line for each request that ended
}

// Decisions is the record of decisions for /debug/decisions and the live page.
type Decisions struct {
	Ring     int    `yaml:"ring"`      // decisions kept; 0 keeps none
	File     string `yaml:"file"`      // each is appended to it as a JSON line; empty for none
	FileSize Bytes  `yaml:"file_size"` // at which the file is put aside and another one begun
	FileKeep int    `yaml:"file_keep"` // how many that were put aside are kept
}

// State is the file in which learned numbers outlive the process.
type State struct {
	File     string        `yaml:"file"`     // read at the start, replaced now and then and at the end; "": none
	Interval time.Duration `yaml:"interval"` // between two writes
}

// Default returns a configuration with no replicas and every other field as the reference says.
//
// Long: a row a section of the file.
func Default() *Config {
	pool := Pool{Index: IndexEvents, PollInterval: time.Second, IndexBytes: 256 << 20}
	return &Config{
		Listen: ":8000",
		Admin:  Admin{Listen: "127.0.0.1:9091"},
		Pools:  Pools{Prefill: pool, Decode: pool},
		Connector: Connector{
			Type: NIXL, Lease: 30 * time.Second, Margin: 15 * time.Second, BootstrapPort: 8998,
			HandshakePort: 6301, NotifyPort: 61005,
		},
		Local: LocalAuto,
		Scoring: Scoring{
			Alpha: Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
			PrefillPiece:   150 * time.Millisecond,
			HeadroomMargin: 0.02, ExpectedOutput: 256, KVBytesPerToken: 128 << 10,
			Links: Links{Host: 100e9, Rack: 40e9, Zone: 40e9, Other: 3e9},
		},
		Tokenizer: Tokenizer{
			Source: TokensEngines, CacheBytes: 64 << 20, ChatTTL: time.Minute, CharsPerToken: 4, ChunkBytes: 256,
		},
		Limits: Limits{
			BodyBytes: 64 << 20, HeaderBytes: 64 << 10, AnswerBytes: 64 << 20, BatchPrompts: 256, Samples: 128,
			Queue: 1024,
		},
		Timeouts: Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: time.Minute, Idle: 2 * time.Minute,
			Tokenize: 2 * time.Second, Queue: 30 * time.Second, Connect: 2 * time.Second,
			Prefill: 5 * time.Minute, DecodeFirst: 2 * time.Minute, DecodeIdle: time.Minute, Answer: 30 * time.Minute,
			ClientWrite: 30 * time.Second, Drain: 25 * time.Second, Probe: 2 * time.Second,
		},
		Retry: Retry{Attempts: 3, Share: 0.2, Min: 3, Continue: ContinueGreedy},
		Health: Health{
			Failures: 5, Ejection: Ejection{Failures: 3, Share: 0.5, Base: time.Second, Max: 5 * time.Minute},
		},
		AnswerCache: AnswerCache{
			AnswerBytes: 1 << 20, TTL: 10 * time.Minute,
			Valkey: Valkey{ValkeyServer: defaultServer, Budget: 20 * time.Millisecond},
		},

		Routers: Routers{Valkey: defaultServer},

		Tracing:   Tracing{Sample: 1},
		Log:       Log{Level: "info", Format: "text"},
		Decisions: Decisions{Ring: 1024, FileSize: 100 << 20, FileKeep: 5},
		State:     State{Interval: time.Minute},

		Experimental: Experimental{
			Policy:  PolicyCost,
			Scoring: ExperimentalScoring{Units: Seconds},
			Routers: ExperimentalRouters{Interval: 100 * time.Millisecond},
		},
	}
}

// FromFlags returns the configuration of a command line without a file: defaults, a listen address ("" keeps
// the default) and the URLs of both pools. A URL without a scheme gets http://. The caller validates.
func FromFlags(listen string, prefill, decode []string) *Config {
	c := Default()
	if listen != "" {
		c.Listen = listen
	}
	c.Pools.Prefill.Replicas = replicas(prefill)
	c.Pools.Decode.Replicas = replicas(decode)
	return c
}

func replicas(urls []string) []Replica {
	var rs []Replica
	for _, u := range urls {
		if !strings.Contains(u, "://") {
			u = "http://" + u
		}
		rs = append(rs, Replica{URL: strings.TrimSuffix(u, "/")})
	}
	return rs
}

// AnswerCache keeps answers for requests that ask the same again. It is off unless it has memory.
type AnswerCache struct {
	MemoryBytes Bytes         `yaml:"memory_bytes"` // for answers; 0 turns the cache off
	AnswerBytes Bytes         `yaml:"answer_bytes"` // of one answer; a longer answer is not kept
	TTL         time.Duration `yaml:"ttl"`          // greatest age of a given answer
	// Whether a fixed seed is enough, at any temperature.
	Seeded bool `yaml:"seeded"`
	// Whether answers outlive the engine process that gave them: the same path or name of a model means the same
	// files for good.
	OutliveEngines bool `yaml:"outlive_engines"`
	// A server in which several routers share their answers.
	Valkey Valkey `yaml:"valkey"`
}

// Valkey is a Valkey or Redis server behind the memory of the answer cache; none without addresses.
type Valkey struct {
	ValkeyServer `yaml:",inline"`

	Budget time.Duration `yaml:"budget"` // how long a look may take
	// What answers are encrypted with there; none writes them as they are.
	Secret       Secret `yaml:"secret"`
	FormerSecret Secret `yaml:"former_secret"` // the earlier secret; answers under it are read
}

// What the mode of a [ValkeyServer] may be.
const (
	ValkeySingle   = "single"
	ValkeyCluster  = "cluster"
	ValkeySentinel = "sentinel"
)
