package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The sizes of the engines. A context has contextTokens/blockTokens blocks. The pools hold few contexts, so
// that blocks are evicted and requests wait for room.
const (
	modelName     = "tiny"
	contextTokens = 1024
	blockTokens   = 32
	prefillBlocks = 112
	decodeBlocks  = 80
)

// Prefill engines compute long prompts in chunks. Engines that sample never do: computing a prompt with a
// seed in chunks crashes vLLM 0.32 on a CPU (RuntimeError: CPU Generator does not use offset, in
// gpu_model_runner.py).
var (
	inChunks = []string{"--max-num-batched-tokens", "512"}
	atOnce   = []string{"--max-num-batched-tokens", strconv.Itoa(16 * contextTokens)}
)

// Roles of an engine: the two NIXL roles; and alone, for an engine behind a router that splits nothing. The
// reference has no role, because no router knows it.
const (
	producer = "kv_producer"
	consumer = "kv_consumer"
	alone    = "alone"
)

// engine is one vLLM server. The exported fields are the ones that another run needs.
//
// Long: the exported fields are one record of a file for other runs.
type engine struct {
	Name      string
	Role      string
	Version   string   // of vLLM; "" is the current version
	Blocks    int      // of the KV cache
	Ranks     int      // of data parallelism; 0 is none
	Flags     []string // more of the command line
	Adapters  []string // served from the start, others can be loaded
	Port      int      // of HTTP
	Side      int      // port of NIXL's side channel, of the first rank
	Events    int      // port of the first rank's events
	Replay    int      // port of the first rank's replay
	Log       string
	PID       int
	Shape     string // name in shapes, if its model is not the usual one
	Connector string // see transfer
	Mute      bool   // without a connector: it cannot hand blocks over
	Apart     bool   // in a network namespace of its own

	Space   string // the name of this namespace, once it exists
	Address string // its address there; "" is 127.0.0.1

	env       environment
	simulator string // the program that simulates engines; "" for a real one
	work      string
	process   *process
}

func (e *engine) host() string { return cmp.Or(e.Address, "127.0.0.1") }

func (e *engine) url() string { return "http://" + e.host() + ":" + strconv.Itoa(e.Port) }

// launch starts a program for the engine, in the engine's namespace if it has one.
func (e *engine) launch(vars []string, program string, args ...string) (*process, error) {
	if e.Space != "" {
		line := inside(e.Space, program, args...)
		program, args = line[0], line[1:]
	}
	return startProcess(e.Name, e.work, vars, program, args...)
}

// start starts the server, at the same ports each time. Its files lie in its folder, so that removing the
// folder removes all files.
func (e *engine) start() (err error) {
	if e.Port == 0 {
		if err := e.takePorts(); err != nil {
			return err
		}
	}
	if e.simulator != "" {
		e.process, err = e.startSimulated()
	} else {
		e.process, err = e.startReal()
	}
	if err == nil {
		e.PID, e.Log = e.process.pid, e.process.log
	}
	return err
}

func (e *engine) startReal() (*process, error) {
	vars := []string{
		"PYTHONPATH=" + e.env.site(), writeBytecode,
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=" + e.binding(), "OMP_NUM_THREADS=1",
		"UCX_TLS=tcp", "VLLM_NIXL_SIDE_CHANNEL_HOST=" + e.host(),
		"VLLM_NIXL_SIDE_CHANNEL_PORT=" + strconv.Itoa(e.Side),
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
		"VLLM_ENGINE_READY_TIMEOUT_S=3600", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1200",
		"TMPDIR=" + e.work, "VLLM_RPC_BASE_PATH=" + e.work,
		"HF_HOME=" + filepath.Join(e.work, "hf"), "XDG_CACHE_HOME=" + filepath.Join(e.work, "xdg"),
		"VLLM_CACHE_ROOT=" + filepath.Join(e.work, "cache"),
		"VLLM_CONFIG_ROOT=" + filepath.Join(e.work, "config"),
	}
	flags, more := e.adapterFlags()
	args := slices.Concat([]string{e.env.python()}, e.args(), flags)
	return e.launch(slices.Concat(vars, more, e.wiringVars()), "nice", args...)
}

// takePorts chooses ports for every rank: rank r has its event ports r above those of the first rank.
func (e *engine) takePorts() error {
	ports, err := freePorts(4, max(1, e.Ranks))
	if err == nil {
		e.Port, e.Side = ports[0], cmp.Or(e.Side, ports[1])
		e.Events, e.Replay = ports[2], ports[3]
	}
	return err
}

func (e *engine) model() string {
	if e.Shape != "" {
		return e.env.shaped(e.Shape)
	}
	return e.env.model()
}

func (e *engine) args() []string {
	args := []string{
		"-m", "vllm.entrypoints.openai.api_server", "--model", e.model(), "--served-model-name", modelName,
		"--host", e.host(), "--port", strconv.Itoa(e.Port), "--dtype", "float32",
		"--enforce-eager", "--enable-prompt-tokens-details",
		"--block-size", strconv.Itoa(blockTokens), "--max-model-len", strconv.Itoa(contextTokens),
		"--num-gpu-blocks-override", strconv.Itoa(e.Blocks),
	}
	if e.Version == "" {
		args = append(args, "--enable-scale-out")
	}
	if (e.Role == producer || e.Role == consumer) && !e.Mute {
		args = append(args, "--kv-transfer-config", e.transfer())
	}
	if e.Role != "" {
		args = append(args, "--kv-events-config", fmt.Sprintf(
			`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d",`+
				`"replay_endpoint":"tcp://*:%d"}`, e.Events, e.Replay))
	}
	if e.Shape != "" {
		args = append(args, "--speculative-config", shapes[e.Shape].guesses)
	}
	if e.Ranks > 1 {
		args = append(args, "--data-parallel-size", strconv.Itoa(e.Ranks))
	}
	return append(args, e.Flags...)
}

// freeze stops every process of the engine (SIGSTOP). unfreeze lets them continue.
func (e *engine) freeze()   { e.process.signal(syscall.SIGSTOP) }
func (e *engine) unfreeze() { e.process.signal(syscall.SIGCONT) }

// kill ends the engine at once (SIGKILL), and returns when no process of the engine is left.
func (e *engine) kill() error { return stop([]*process{e.process}, 0) }

// dead describes how the engine ended, or is "".
func (e *engine) dead() string {
	select {
	case <-e.process.ended:
		return fmt.Sprintf("%s: %s", e.process.state, e.process.cause())
	default:
		return ""
	}
}

// Ports are taken from below the range that systems assign to programs without a fixed port. An engine begins
// to listen a minute after the port was chosen, and no other program may get the port in between.
const (
	firstPort = 20000
	lastPort  = 31999
)

// portRange has the ports that freePorts chooses from. main narrows them before anything runs.
var portRange = struct{ first, last int }{firstPort, lastPort}

// freePorts returns n ports in no order. It never returns a port twice. No process listens on the ports and
// on the following ones up to width in all.
func freePorts(n, width int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := portRange.first + rand.IntN(portRange.last-width-portRange.first+1)
		if !free(port, width) {
			continue
		}
		for i := range width {
			given[port+i] = true
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("fewer than %d free ports from %d to %d", n, firstPort, lastPort)
}

// given are the ports that freePorts has returned. Only one goroutine calls freePorts.
var given = map[int]bool{}

func free(port, width int) bool {
	for i := port; i < port+width; i++ {
		if given[i] {
			return false
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(i))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// awaitHealthy waits until every engine answers. Every few seconds it prints the missing engines.
func awaitHealthy(ctx context.Context, engines []*engine) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return awaitWorking(ctx, engines, stillLimit)
}

// awaitWorking waits as long as all engines that do not answer yet do some work.
func awaitWorking(ctx context.Context, engines []*engine, still time.Duration) error {
	begun, said := time.Now(), time.Now()
	working := progress{still: still}
	for {
		var missing []string
		var theirs []*process
		for _, e := range engines {
			if how := e.dead(); how != "" {
				return fmt.Errorf("the engine %s ended: %s\nthe end of its log:\n%s", e.Name, how,
					e.process.logTail(15))
			}
			if !e.answers(ctx) {
				missing, theirs = append(missing, e.Name), append(theirs, e.process)
			}
		}
		if len(missing) == 0 {
			say("engines: all ready after %.0f s", time.Since(begun).Seconds())
			return nil
		}
		if p := working.stuck(theirs); p != nil {
			return fmt.Errorf("%s does not come up, and has done nothing for %v\nthe end of its log:\n%s",
				p.name, still, p.logTail(15))
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			say("engines: %.0f s, waiting for %s", time.Since(begun).Seconds(), strings.Join(missing, " "))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engines %s do not come up: %w", strings.Join(missing, " "),
				context.Cause(ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// answers reports whether the engine answers /health, even slowly.
func (e *engine) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := get(ctx, e.url()+"/health")
	return err == nil
}

// usage is the largest share of KV blocks in use of any rank of the engine, 0 to 1.
func (e *engine) usage(ctx context.Context) (float64, error) {
	used, err := e.metric(ctx, "vllm:kv_cache_usage_perc{")
	if err != nil {
		return 0, err
	}
	most := 0.0
	for _, u := range used {
		most = max(most, u)
	}
	return most, nil
}

// metric reads the samples of /metrics whose lines begin with prefix.
func (e *engine) metric(ctx context.Context, prefix string) ([]float64, error) {
	body, err := get(ctx, e.url()+"/metrics")
	if err != nil {
		return nil, err
	}
	var found []float64
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", e.Name, line, err)
		}
		found = append(found, v)
	}
	if len(found) == 0 {
		return nil, errors.New("no " + prefix + " in /metrics of " + e.Name)
	}
	return found, nil
}

// client sends requests to engines and routers. It does not reuse a connection that was idle for long:
// engines close theirs after five seconds, and a request sent at that moment gets no answer.
var client = &http.Client{
	Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 16, IdleConnTimeout: 2 * time.Second},
	Timeout:   15 * time.Minute,
}
