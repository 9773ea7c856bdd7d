package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// simCommand serves a simulated vLLM until the context ends.
func simCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sim", Short: "serve one simulated vLLM engine", Args: noArgs,
		Long: "Simulates a vLLM engine without a model: its HTTP API, its KV events over ZMQ, and KV transfers\n" +
			"between simulated engines, as by NIXL. When it is ready it prints a line that begins with its URL.\n" +
			"It ends on SIGTERM.",
	}
	var o enginesim.Options
	finish := simFlags(c, &o)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := finish(); err != nil {
			return err
		}
		s, err := enginesim.Start(o)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), simReady(s, o))
		<-c.Context().Done()
		return s.Close()
	}
	return c
}

// simReady returns the line that says where the server listens: first the URL, then the other addresses.
func simReady(s *enginesim.Server, o enginesim.Options) string {
	line := s.URL()
	if o.Role != "" {
		line += " role=" + o.Role
	}
	if events, replay := s.Endpoints(0); events != "" {
		line += " events=" + events + " replay=" + replay
	}
	if addr := s.P2PAddr(0); addr != "" {
		line += " p2p=" + addr
	}
	if s.BootstrapURL() != "" {
		line += " bootstrap=" + s.BootstrapURL()
	}
	if s.ControlURL() != "" {
		line += " control=" + s.ControlURL()
	}
	return line
}

// simFlags adds the flags of sim. After the command line was read, finish sets options that depend on more
// than one flag.
//
// Long: one row per flag.
func simFlags(c *cobra.Command, o *enginesim.Options) (finish func() error) {
	var faults []string
	var speed string
	var factor, transferRate float64
	fs := c.Flags()
	fs.StringVar(&o.Addr, "listen", "127.0.0.1:0", "address to listen on; port 0 picks one")
	fs.StringVar(&o.Model, "model", "sim", "served model name")
	fs.StringArrayVar(&o.Aliases, "alias", nil, "another `name` of the model (repeatable)")
	fs.StringArrayVar(&o.Adapters, "adapter", nil,
		"a LoRA adapter to serve, as `name` or name=path (repeatable)")
	fs.StringVar(&o.Role, "role", "", "role of the engine, for the ready line; only Mooncake's and MoRI-IO's "+
		"engines heed it")
	fs.StringVar(&o.Version, "version", "0.32.0", "vLLM version to speak as, 0.20 to 0.33")
	fs.IntVar(&o.Core.BlockSize, "block-size", 16, "tokens per KV block")
	groups := "KV cache groups of a hybrid model in the engine's order, as KIND[:BLOCK_SIZE[:WINDOW]],…"
	fs.Func("kv-groups", groups, func(s string) (err error) {
		o.Core.Groups, err = core.ParseGroups(s)
		return err
	})
	fs.IntVar(&o.Core.Blocks, "blocks", 0, "KV blocks; 0: the capacity of the speed preset's GPU, or 8192")
	fs.IntVar(&o.Core.MaxModelLen, "max-model-len", 32768, "tokens of prompt and answer together")
	fs.IntVar(&o.Core.MaxBatchedTokens, "max-num-batched-tokens", 8192, "tokens per scheduler step")
	fs.IntVar(&o.Core.MaxSeqs, "max-num-seqs", 256, "most requests in the batch")
	fs.IntVar(&o.Core.Vocab, "vocab", 4096, "vocabulary size")
	fs.IntVar(&o.Core.Speculative, "num-speculative-tokens", 0, "tokens drafted for each sequence and step")
	fs.IntVar(&o.Core.TensorParallel, "tensor-parallel-size", 1,
		"ranks of the engine: what params say, who may read from whom, and links side by side")
	fs.IntVar(&o.Core.KVHeads, "kv-heads", 8, "KV heads of the model, which the ranks share")
	fs.IntVar(&o.Core.Withhold, "withhold-tokens", 0,
		"prompt tokens that a prefill leaves to decode, and decode expects to be left")
	fs.DurationVar(&o.Core.Lease, "lease", 0,
		"how long a prefill engine keeps blocks for a decode engine (default 30s)")
	fs.IntVar(&o.Core.Tier.Blocks, "host-blocks", 0, "KV blocks in host memory; 0 for none")
	fs.StringVar(&o.P2P, "p2p", "", "address where other engines pull blocks of --host-blocks; each rank "+
		"listens one port higher than the rank before it")
	fs.StringVar(&o.Bootstrap, "bootstrap", "",
		"address of the bootstrap server of a prefill engine with Mooncake (default port 8998 of --side-host)")
	fs.StringVar(&o.Core.Host, "side-host", "127.0.0.1", "host of the side channel, for other engines")
	fs.IntVar(&o.Core.Port, "side-port", 0, "port of the side channel, plus the rank; 0 picks one")
	fs.StringVar(&speed, "speed", "8b", "how fast steps are: "+strings.Join(presetNames(), ", "))
	fs.Float64Var(&factor, "speed-factor", 1, "2 is twice as fast as the preset")
	fs.BoolVar(&o.ZeroLatency, "zero-latency", false, "steps and transfers take no time")
	fs.DurationVar(&o.TransferLatency, "transfer-latency", 0, "time before each read of a peer's blocks")
	fs.Float64Var(&transferRate, "transfer-gbps", 0,
		"bandwidth of each rank in gigabits a second; 0 is infinite")
	fs.DurationVar(&o.HandshakeTimeout, "handshake-timeout", 0,
		"time lost with an absent peer (default 5s)")
	fs.Func("kv-load-failure-policy", "if blocks cannot be loaded: fail or recompute (default fail)",
		o.Core.LoadPolicy.Set)
	fs.StringVar(&o.EventsEndpoint, "events", "",
		"ZMQ PUB endpoint for KV events, for example tcp://127.0.0.1:0; if empty, no events are published")
	fs.StringVar(&o.ReplayEndpoint, "replay", "",
		"ZMQ ROUTER endpoint for replays (default: a free port beside --events)")
	fs.StringVar(&o.Topic, "topic", "", "topic of the events")
	fs.BoolVar(&o.NoReplay, "no-replay", false, "publish without a replay endpoint")
	fs.IntVar(&o.DPRanks, "data-parallel-size", 1, "data-parallel ranks behind this address")
	fs.BoolVar(&o.ScaleOut, "enable-scale-out", false, "serve /inference/v1/generate and the /render paths")
	fs.BoolVar(&o.LoadAdapters, "allow-runtime-lora-updating", false,
		"load and unload adapters over HTTP, as with VLLM_ALLOW_RUNTIME_LORA_UPDATING")
	fs.BoolVar(&o.ToolParser, "enable-auto-tool-choice", false,
		"accept tools, like a server with a tool parser; the model never calls one")
	fs.BoolVar(&o.NoORCA, "no-orca", false, "never send load in response headers")
	fs.BoolVar(&o.ServerLoad, "enable-server-load-tracking", false, "count running requests at /load")
	fs.BoolVar(&o.NoUsageDetails, "no-prompt-tokens-details", false, "leave cached_tokens out of usage")
	fs.BoolVar(&o.ForceUsage, "enable-force-include-usage", false,
		"report usage in every chunk of a stream, even if the request does not ask for it")
	fs.BoolVar(&o.NoRequestIDs, "no-request-id-headers", false,
		"answer without x-request-id, as vLLM does by default")
	fs.StringVar(&o.Control, "control", "", "address of a control listener: POST /fault, GET /stats")
	fs.StringArrayVar(&faults, "fault", nil,
		"a `fault` from the start, for example \"cut_stream,leg=decode,after=3\" (repeatable)")
	wrongFlags(fs, o)
	choices(c, "role", "prefill", "decode")
	choices(c, "speed", presetNames()...)
	choices(c, "kv-load-failure-policy", "fail", "recompute")
	choices(c, "kv-protocol", "push", "mooncake", "moriio", "moriio-write")
	return func() error {
		for _, text := range faults {
			f, err := enginesim.ParseFault(text)
			if err != nil {
				return wrongValue("--fault: %s", err)
			}
			o.Faults = append(o.Faults, f)
		}
		o.Core.Role = map[string]core.Role{"prefill": core.Producer, "decode": core.Consumer}[o.Role]
		if err := aboveZero("block-size", float64(o.Core.BlockSize)); err != nil {
			return err
		}
		return applySpeed(o, speed, factor, transferRate)
	}
}

// wrongFlags simulate wrongly configured engines, for tests of tandem doctor.
func wrongFlags(fs *pflag.FlagSet, o *enginesim.Options) {
	w := &o.Wrong
	fs.BoolVar(&o.Core.NoPrefixCaching, "no-enable-prefix-caching", false, "have no prefix cache")
	fs.BoolVar(&w.NullPublisher, "null-publisher", false, "report that events are published, and publish none")
	fs.BoolVar(&w.StrictBind, "strict-bind", false, "bind --events only if it contains * or ::, like vLLM")
	fs.StringVar(&w.TellReplay, "tell-replay", "", "report this replay endpoint instead of the real one")
	fs.IntVar(&w.TellBlockSize, "tell-block-size", 0, "report this block size instead of the real one")
	fs.IntVar(&w.BufferSteps, "buffer-steps", 0, "batches kept for replay (default 10000)")
	fs.StringVar(&w.Tokenizer, "tokenizer", "", "a name; servers with different names give words different ids")
	fs.DurationVar(&w.ClockSkew, "clock-skew", 0, "how far the server's clock is ahead")
	fs.BoolVar(&w.NoConnector, "no-connector", false, "show no KV connector")
	fs.Func("kv-protocol",
		"push: use NIXL push; mooncake: use Mooncake; moriio, moriio-write: use MoRI-IO in READ or WRITE mode "+
			"(default NIXL pull)",
		o.SetProtocol)
	fs.BoolVar(&w.NoSalt, "no-salt", false, "leave cache salts out of events")
	fs.StringVar(&w.CacheDType, "kv-cache-dtype", "",
		"the KV cache's type in /metrics (default auto)")
	fs.BoolVar(&w.NoStats, "disable-log-stats", false, "leave vLLM's series out of /metrics")
}

// applySpeed fills in the values of the preset: the costs of a step and the size of the KV cache. It also
// sets the speed of links in blocks per second.
func applySpeed(o *enginesim.Options, name string, factor, gbps float64) error {
	p, ok := core.FindPreset(name)
	if !ok {
		return wrongValue("--speed %q: want one of %s", name, strings.Join(presetNames(), ", "))
	}
	o.Core.Cost = p.Cost
	o.Core.Cost.Speed = factor
	if !o.ZeroLatency {
		o.Core.Blocks = cmp.Or(o.Core.Blocks, p.KVTokens/o.Core.BlockSize)
	}
	o.TransferRate = gbps * 1e9 / 8 / float64(p.TokenBytes*o.Core.BlockSize)
	return nil
}

func presetNames() []string {
	names := []string{"8b", "70b"}
	for _, p := range core.Presets() {
		names = append(names, p.Name)
	}
	return names
}
