// Command e2evllm holds Tandem to real vLLM: it installs vLLM for CPUs, makes a tiny model, starts two prefill and two decode engines and one that
// takes no part in splitting, sends requests through the built binary and the same ones to that engine, and compares the answers.
//
//	make e2e-vllm
//
// It needs Linux, Python 3.11, a package index, 7 GB of disk and 16 GB of memory; no GPU. What it installs stays in the user's cache and is used
// again. Everything else is gone at its end, also when it is interrupted. Exit code 0: everything held, 1: something did not, or could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	tandem   string
	cache    string
	requests int
	seed     uint64
	keep     string
}

func main() {
	var o options
	flag.StringVar(&o.tandem, "tandem", "build/tandem", "the `binary` under test")
	flag.StringVar(&o.cache, "cache", "", "`folder` of what is installed (default: tandem in the user's cache)")
	flag.IntVar(&o.requests, "requests", 320, "`number` of requests: half of them one at a time, half of them eight at a time")
	flag.Uint64Var(&o.seed, "seed", 1, "another seed is other requests")
	flag.StringVar(&o.keep, "keep", "", "`folder` to move the logs to when something failed")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	begun := time.Now()
	err := run(ctx, o)
	say("it took %.0f s", time.Since(begun).Seconds())
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1) //nolint:gocritic // the context is the process's own
	}
	say("everything held")
}

// say shows progress.
func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, o options) (err error) {
	tandem, err := filepath.Abs(o.tandem)
	if err == nil {
		_, err = os.Stat(tandem)
	}
	if err != nil {
		return fmt.Errorf("the binary under test: %w; `make build` makes it", err)
	}
	if o.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.cache = filepath.Join(user, "tandem")
	}
	env, err := prepare(ctx, o.cache)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "tandem-vllm-")
	if err != nil {
		return err
	}
	s := &stage{tandem: tandem, work: work, options: o}
	defer func() { err = errors.Join(err, s.leave(err != nil)) }()
	if err := s.startEngines(ctx, env); err != nil {
		return err
	}
	return s.play(ctx)
}

// stage is everything that one run has started.
type stage struct {
	options
	tandem    string
	work      string
	engines   []*engine
	processes []*process // the newest last
}

func (s *stage) startEngines(ctx context.Context, env environment) error {
	for _, e := range fleet() {
		if err := e.start(env, s.work); err != nil {
			return err
		}
		s.engines, s.processes = append(s.engines, e), append(s.processes, e.process)
	}
	return awaitHealthy(ctx, s.engines, 8*time.Minute)
}

// leave ends every process and removes every file of the run; logs are kept first where they are wanted.
func (s *stage) leave(failed bool) error {
	say("ending %d processes", len(s.processes))
	err := stop(s.processes, 20*time.Second)
	if failed && s.keep != "" {
		logs, _ := filepath.Glob(filepath.Join(s.work, "*.log"))
		for _, l := range logs {
			err = errors.Join(err, copyFile(l, filepath.Join(s.keep, filepath.Base(l))))
		}
	}
	return errors.Join(err, os.RemoveAll(s.work))
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// play examines the engines with the doctor and runs the suite in its two forms, and prints what came of it.
func (s *stage) play(ctx context.Context) error {
	var errs []error
	for _, ph := range []phase{
		{name: "one at a time, always split", local: "never", requests: s.requests / 2, workers: 1, seed: s.seed, predicted: 0.99, doctor: true},
		{name: "eight at a time, split or local", local: "auto", requests: s.requests - s.requests/2, workers: 8, seed: s.seed + 1000, predicted: 0.95},
	} {
		err := s.playPhase(ctx, ph)
		if ctx.Err() != nil {
			return errors.Join(append(errs, errors.New("interrupted"))...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ph.name, err))
		}
	}
	return errors.Join(errs...)
}
