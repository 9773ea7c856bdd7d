package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed clients/*.py
var clientScripts embed.FS

//go:embed pins-clients.txt
var pinsClients []byte

// benchmarkers are the packages that the clients need beyond vLLM's own.
var benchmarkers = packages{pinsClients, "guidellm.benchmark"}

// clientLimit is the longest time for one client, with its start. On an idle machine a client takes a minute
// at most.
const clientLimit = 20 * time.Minute

// benchPrompts is the number of requests of a benchmark, and benchTokens the tokens of each answer.
const (
	benchPrompts = 20
	benchTokens  = 8
)

// checked is a client's report on one check.
type checked struct {
	Check   string  `json:"check"`
	OK      bool    `json:"ok"`
	Why     string  `json:"why"`
	Seconds float64 `json:"seconds"`
}

func (c *checked) result() string {
	if c.OK {
		return "ok"
	}
	return "FAILED: " + c.Why
}

// realClient is an unmodified program of another project that uses Tandem.
type realClient struct {
	name string
	run  func(context.Context, *stage, *router) ([]checked, error)
}

var realClients = []realClient{
	{"openai", scripted("with_openai.py")},
	{"anthropic", scripted("with_anthropic.py")},
	{"vllm bench serve", benchServe},
	{"guidellm", guide},
}

// clients lets real clients use the built binary. After each client, even one that left in mid-request,
// Tandem holds no lease and no engine holds a block.
func clients(ctx context.Context, s *stage) error {
	file, err := s.configure("clients", "local: never", "timeouts: {queue: 2m}")
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	if err := s.unpackClients(); err != nil {
		return err
	}
	limited, err := s.startLimited(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	var errs []error
	for _, c := range slices.Concat(realClients, []realClient{{"openai, limited", limited.end}}) {
		begun := time.Now()
		said, err := c.run(ctx, s, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(begun)
		said = append(said, s.leftNothing(ctx, r))
		errs = append(errs, judgeClient(c.name, said, err))
		say("clients: %s, %d checks in %.0f s", c.name, len(said), took.Seconds())
		for _, one := range said {
			fmt.Fprintf(t, "  %s\t%s\t%.1f s\t%s\n",
				c.name, one.Check, one.Seconds, one.result())
		}
	}
	fmt.Println()
	_ = t.Flush()
	fmt.Println()
	return errors.Join(append(errs, r.end())...)
}

// judgeClient returns the failed checks of a client. A client without a report has failed.
func judgeClient(name string, said []checked, err error) error {
	errs := []error{err}
	for _, one := range said {
		if !one.OK {
			errs = append(errs, fmt.Errorf("%s: %s", one.Check, one.Why))
		}
	}
	if len(said) < 2 {
		errs = append(errs, errors.New("the client has checked nothing"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// leftNothing checks that no lease and no block is kept for clients that have gone.
func (s *stage) leftNothing(ctx context.Context, r *router) checked {
	idle, err := s.awaitIdle(ctx, idleLimit)
	leases, errLeases := r.series(ctx, "tandem_leases")
	if err = errors.Join(err, errLeases); err == nil && leases != 0 {
		err = fmt.Errorf("%v leases", leases)
	}
	c := checked{Check: "afterwards no lease and no block is kept", OK: err == nil, Seconds: idle.Seconds()}
	if err != nil {
		c.Why = err.Error()
	}
	return c
}

func (s *stage) clientDir() string { return filepath.Join(s.work, "clients") }

func (s *stage) unpackClients() error {
	if err := os.MkdirAll(s.clientDir(), 0o755); err != nil {
		return err
	}
	files, err := clientScripts.ReadDir("clients")
	for _, f := range files {
		text, errFile := clientScripts.ReadFile("clients/" + f.Name())
		err = errors.Join(err, errFile, os.WriteFile(filepath.Join(s.clientDir(), f.Name()), text, 0o644))
	}
	return err
}

// playProgram runs a program to its end and returns its output. Its processes and files are removed.
func (s *stage) playProgram(ctx context.Context, name, program string, args ...string) (string, error) {
	p, err := s.startProgram(name, program, args...)
	if err != nil {
		return "", err
	}
	return s.endProgram(ctx, p)
}

// startProgram starts a program with a new folder for its files.
func (s *stage) startProgram(name, program string, args ...string) (*process, error) {
	home := filepath.Join(s.clientDir(), name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	env := []string{
		writeBytecode, "PYTHONUNBUFFERED=1", "HF_HUB_OFFLINE=1", "HF_HOME=" + home, "XDG_CACHE_HOME=" + home,
		"TMPDIR=" + home, "VLLM_CACHE_ROOT=" + home,
		"VLLM_CONFIG_ROOT=" + home, "VLLM_NO_USAGE_STATS=1", "OMP_NUM_THREADS=1",
		"TOKENIZERS_PARALLELISM=false",
	}
	p, err := startProcess("client-"+name, s.work, env, program, args...)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

// endProgram waits for the end of a program and returns its output.
func (s *stage) endProgram(ctx context.Context, p *process) (string, error) {
	err := p.awaitEnd(ctx, clientLimit, stillLimit)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	err = errors.Join(err, stop([]*process{p}, time.Second))
	text, errLog := os.ReadFile(p.log)
	if err == nil && p.state != "exit status 0" {
		err = fmt.Errorf("%s\n%s", p.state, p.logTail(15))
	}
	return string(text), errors.Join(err, errLog)
}

// scripted runs a script of the folder clients, which prints a line of JSON for each check.
func scripted(file string) func(context.Context, *stage, *router) ([]checked, error) {
	return func(ctx context.Context, s *stage, r *router) ([]checked, error) {
		p, err := s.startScript(file, r)
		if err != nil {
			return nil, err
		}
		text, err := s.endProgram(ctx, p)
		return readChecks(text), err
	}
}

// startScript starts a script of the folder clients.
func (s *stage) startScript(file string, r *router) (*process, error) {
	return s.startProgram(strings.TrimSuffix(file, ".py"), s.env.python(),
		filepath.Join(s.clientDir(), file), r.front, s.reference().url())
}

func readChecks(text string) []checked {
	var all []checked
	for line := range strings.Lines(text) {
		var c checked
		if strings.HasPrefix(line, `{"check"`) && json.Unmarshal([]byte(line), &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// benchServe runs vLLM's own benchmark, streamed completions and chats.
func benchServe(ctx context.Context, s *stage, r *router) ([]checked, error) {
	var all []checked
	args := []string{filepath.Join(s.clientDir(), "bench_serve.py")}
	kinds := [][2]string{{"openai", completions}, {"openai-chat", chat}}
	for i, kind := range kinds {
		if i > 0 {
			args = append(args, "--")
		}
		args = append(args,
			"--backend", kind[0], "--endpoint", kind[1], "--base-url", r.front, "--model", modelName,
			"--tokenizer",
			s.env.model(), "--dataset-name", "random",
			"--random-input-len", "90", "--random-output-len", fmt.Sprint(benchTokens), "--num-prompts",
			fmt.Sprint(benchPrompts), "--max-concurrency", "4", "--ignore-eos",
			"--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", s.clientDir(),
			"--result-filename",
			kind[0]+
				".json")
	}
	_, err := s.playProgram(ctx, "bench-serve", s.env.python(), args...)
	for _, kind := range kinds {
		var is struct {
			Completed, Failed int
			Output            int `json:"total_output_tokens"`
			Errors            []string
		}
		c := checked{Check: fmt.Sprintf("%d requests of the backend %s", benchPrompts, kind[0])}
		c.OK, c.Why = readReport(filepath.Join(s.clientDir(), kind[0]+".json"), &is, func() bool {
			return is.Completed == benchPrompts && is.Failed == 0 && is.Output == benchPrompts*benchTokens &&
				strings.Join(is.Errors, "") == ""
		})
		all = append(all, c)
	}
	return all, err
}

// readReport reads a report into is, and returns whether the check holds.
func readReport(file string, is any, holds func() bool) (ok bool, why string) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, is)
	}
	switch {
	case err != nil:
		return false, err.Error()
	case !holds():
		return false, fmt.Sprintf("%.500v", is)
	}
	return true, ""
}

// guide runs guidellm, which is installed with its own packages.
func guide(ctx context.Context, s *stage, r *router) ([]checked, error) {
	env, err := install(ctx, s.env.root, benchmarkers)
	if err != nil {
		return nil, err
	}
	report := filepath.Join(s.clientDir(), "guidellm.json")
	_, err = s.playProgram(ctx, "guidellm", env.python(), "-m", "guidellm", "run",
		"--backend", "kind=openai_http,target="+r.front+",model="+modelName, "--profile",
		"kind=concurrent,streams=4", "--constraint", fmt.Sprintf("kind=max_requests,count=%d", benchPrompts),
		"--tokenizer", "kind=huggingface_auto,model="+s.env.model(), "--data",
		fmt.Sprintf("kind=synthetic_text,prompt_tokens=64,output_tokens=%d", benchTokens),
		"--output", "kind=json,path="+report, "--disable-console-interactive")
	var is struct {
		Benchmarks []struct {
			Metrics struct {
				Requests struct{ Successful, Errored, Incomplete int } `json:"request_totals"`
			}
		}
	}
	c := checked{Check: fmt.Sprintf("%d streamed chats", benchPrompts)}
	c.OK, c.Why = readReport(report, &is, func() bool {
		if len(is.Benchmarks) != 1 {
			return false
		}
		n := is.Benchmarks[0].Metrics.Requests
		return n.Successful == benchPrompts && n.Errored+n.Incomplete == 0
	})
	return []checked{c}, err
}
