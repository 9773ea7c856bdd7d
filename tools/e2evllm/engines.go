package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The sizes of the engines: a context of contextTokens is contextTokens/blockTokens blocks, and the pools hold only few of those, so that blocks
// are evicted and requests wait for room.
const (
	modelName     = "tiny"
	contextTokens = 1024
	blockTokens   = 32
	prefillBlocks = 112
	decodeBlocks  = 80
)

// engine is one vLLM server. role is the one it has in NIXL, empty for the reference, which takes no part in splitting.
type engine struct {
	name, role string
	blocks     int
	port       int
	process    *process
}

func (e *engine) url() string { return "http://127.0.0.1:" + strconv.Itoa(e.port) }

func fleet() []*engine {
	return []*engine{
		{name: "p0", role: "kv_producer", blocks: prefillBlocks},
		{name: "p1", role: "kv_producer", blocks: prefillBlocks},
		{name: "d0", role: "kv_consumer", blocks: decodeBlocks},
		{name: "d1", role: "kv_consumer", blocks: decodeBlocks},
		{name: "ref", blocks: 512},
	}
}

// start starts the server. Its files go to work, so that nothing of it is left when work is removed.
func (e *engine) start(env environment, work string) error {
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	e.port = ports[0]
	args := []string{
		"-m", "vllm.entrypoints.openai.api_server", "--model", env.model(), "--served-model-name", modelName,
		"--host", "127.0.0.1", "--port", strconv.Itoa(e.port), "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details", "--enable-scale-out",
		"--block-size", strconv.Itoa(blockTokens), "--max-model-len", strconv.Itoa(contextTokens), "--num-gpu-blocks-override", strconv.Itoa(e.blocks),
	}
	if e.role != "" {
		args = append(args,
			"--kv-transfer-config", fmt.Sprintf(`{"kv_connector":"NixlConnector","kv_role":%q,"kv_buffer_device":"cpu","kv_load_failure_policy":"fail",`+
				`"kv_connector_extra_config":{"num_threads":1}}`, e.role),
			"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`, ports[2], ports[3]))
	}
	vars := []string{
		"PYTHONPATH=" + env.site(), writeBytecode, "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "UCX_TLS=tcp",
		"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT=" + strconv.Itoa(ports[1]), "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
		"TMPDIR=" + work, "VLLM_RPC_BASE_PATH=" + work, "HF_HOME=" + filepath.Join(work, "hf"), "VLLM_CACHE_ROOT=" + filepath.Join(work, "cache"),
		"VLLM_CONFIG_ROOT=" + filepath.Join(work, "config"), "XDG_CACHE_HOME=" + filepath.Join(work, "xdg"),
	}
	e.process, err = startProcess(e.name, work, vars, "nice", append([]string{env.python()}, args...)...)
	return err
}

// Ports are taken from below those that systems give to whoever asks for any, so that nobody is given one of ours between the look and the minute
// later in which an engine listens there.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePorts returns n ports on which nobody listens, in no order, none of which it has returned before.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if given[port] {
			continue
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		_ = l.Close()
		given[port] = true
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("fewer than %d free ports from %d to %d", n, firstPort, lastPort)
}

// given are the ports that freePorts has returned; it is called by one goroutine.
var given = map[int]bool{}

// awaitHealthy waits until every engine answers, and says each few seconds which do not yet.
func awaitHealthy(ctx context.Context, engines []*engine, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun, said := time.Now(), time.Now()
	for {
		var missing []string
		for _, e := range engines {
			select {
			case <-e.process.ended:
				return fmt.Errorf("the engine %s ended (%s): %s\nthe end of its log:\n%s", e.name, e.process.cmd.ProcessState, e.process.cause(), e.process.logTail(15))
			default:
			}
			if _, err := get(ctx, e.url()+"/health"); err != nil {
				missing = append(missing, e.name)
			}
		}
		if len(missing) == 0 {
			say("engines: all ready after %.0f s", time.Since(begun).Seconds())
			return nil
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			say("engines: %.0f s, waiting for %s", time.Since(begun).Seconds(), strings.Join(missing, " "))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engines %s do not come up: %w", strings.Join(missing, " "), context.Cause(ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// usage is the share of the engine's KV blocks in use, 0 to 1.
func (e *engine) usage(ctx context.Context) (float64, error) {
	body, err := get(ctx, e.url()+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "vllm:kv_cache_usage_perc{") {
			continue
		}
		fields := strings.Fields(line)
		return strconv.ParseFloat(fields[len(fields)-1], 64)
	}
	return 0, errors.New("no vllm:kv_cache_usage_perc in /metrics of " + e.name)
}

// process is a program in a process group of its own.
type process struct {
	name  string
	log   string // file of its output
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait, after ended
	left  bool  // no process of the group was left: its number may be another's now
}

func startProcess(name, work string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(work, name+".log"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = work
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) logTail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(lastLines(b, lines))
}

// cause is the first error that the log names: what vLLM's processes say last is that another of them failed.
func (p *process) cause() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(errorLine.Find(b)))
}

var errorLine = regexp.MustCompile(`(?m)^.*\b[A-Z]\w*Error: .*$`)

// stop ends all of the groups: asked first, and killed after grace. It returns when no process of them is left, and removes the shared memory that
// those had mapped which had to be killed.
func stop(processes []*process, grace time.Duration) error {
	processes = slices.DeleteFunc(slices.Clone(processes), func(p *process) bool { return p.left })
	var memory []string
	for _, p := range processes {
		memory = append(memory, sharedMemory(p.cmd.Process.Pid)...)
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	}
	deadline := time.Now().Add(grace)
	var errs []error
	for _, p := range processes {
		if !gone(p, time.Until(deadline)) {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
			if !gone(p, 10*time.Second) {
				errs = append(errs, fmt.Errorf("processes of %s (group %d) are left after SIGKILL", p.name, p.cmd.Process.Pid))
			}
		}
	}
	for _, file := range memory {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// gone waits until the group has no process, limit at most.
func gone(p *process, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		if errors.Is(syscall.Kill(-p.cmd.Process.Pid, 0), syscall.ESRCH) {
			<-p.ended
			p.left = true
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sharedMemory lists the files of /dev/shm that processes of the group have mapped.
func sharedMemory(group int) []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	seen := map[string]bool{}
	var files []string
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if g, err := syscall.Getpgid(pid); err != nil || g != group {
			continue
		}
		maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
		for line := range strings.Lines(string(maps)) {
			at := strings.Index(line, "/dev/shm/")
			if at < 0 {
				continue
			}
			if file := strings.TrimSpace(line[at:]); !seen[file] && !strings.HasSuffix(file, " (deleted)") {
				seen[file] = true
				files = append(files, file)
			}
		}
	}
	return files
}

var client = &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 16}, Timeout: 3 * time.Minute}
