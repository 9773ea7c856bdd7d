// Command e2evllm holds Tandem to real vLLM. It installs vLLM for CPUs and makes a tiny model. It starts two
// prefill and two decode engines, and one engine that takes no part in splitting. It sends requests through
// the built binary, and the same requests to the latter engine. Then it compares the answers.
//
//	make e2e-vllm
//
// It needs Linux, Python 3.11, a package index, 7 GB of disk and 16 GB of memory; no GPU. What it installs
// stays in the user's cache and is used again. Everything else is gone at its end, also when it is
// interrupted. Exit code 0: everything held, 1: something did not, or could not be run.
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

	"github.com/tandem-router/tandem/tools/pinned"
)

// options are the flags.
//
// Long: each flag is one field.
type options struct {
	tandem   string
	cache    string
	requests int
	seed     uint64
	keep     string
	only     string
	faults   string
	kills    int
	stay     string
	stayWith string
	attach   string
	simulate bool
	lane     string
	lanes    bool
}

func main() {
	var o options
	flag.StringVar(&o.tandem, "tandem", "build/tandem", "the `binary` under test")
	flag.StringVar(&o.cache, "cache", "", "`folder` of what is installed (default: tandem in the user's cache)")
	flag.IntVar(&o.requests, "requests", 320,
		"`number` of requests whose answers are compared: half of them one at a time, half of them eight at a time")
	flag.Uint64Var(&o.seed, "seed", 1, "another seed is other requests")
	flag.StringVar(&o.keep, "keep", "", "`folder` to move the logs to when something failed")
	flag.StringVar(&o.only, "only", "", "`acts` to play, separated by commas: "+actNames()+" (default: all)")
	flag.StringVar(&o.faults, "faults", "",
		"of the act faults, `those` that are made, separated by commas: "+faultNames()+" (default: all)")
	flag.IntVar(&o.kills, "kills", usualKills,
		"of the act death, the `number` of times that a decode engine is killed; for more than the default there "+
			"is a third")
	flag.StringVar(&o.stay, "stay", "",
		"play nothing: start engines, note them in this `file`, and keep them until interrupted")
	flag.StringVar(&o.stayWith, "fleet", pools.name, "the `fleet` that -stay starts")
	flag.StringVar(&o.attach, "attach", "",
		"play with the engines that this `file` notes, as a run with -stay writes it; install nothing, and leave "+
			"them standing")
	flag.BoolVar(&o.simulate, "sim", false, "play with simulated engines in the place of real ones")
	flag.BoolVar(&o.lanes, "lanes", false,
		"play the acts of the fleet pools and those of all others at the same time: "+
			"shorter where nine engines have cores and 20 GiB of memory to themselves")
	flag.StringVar(&o.lane, "lane", "", "the `lane` that this process is, one of two that run side by side")
	flag.Parse()
	keepToOneself()
	portRange.first, portRange.last = portsOf(o.lane)
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

// keepToOneself keeps files that this process was started with, a lock for example, from the engines, which
// may outlive it.
func keepToOneself() {
	for fd := 3; fd < 64; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// say shows progress.
func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, o options) (err error) {
	program, err := chosen(o.only)
	if err != nil {
		return err
	}
	if lanes := lanesOf(program); o.sideBySide(lanes) {
		return o.playLanes(ctx, lanes)
	}
	s, err := newStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.leave(err != nil)) }()
	if o.attach != "" {
		if err := s.borrow(); err != nil {
			return err
		}
	}
	if o.stay != "" {
		f, err := fleetNamed(o.stayWith)
		if err != nil {
			return err
		}
		return s.stand(ctx, f)
	}
	return s.play(ctx, program)
}

// newStage finds the binary under test and brings vLLM here, unless all is simulated or the engines stand
// already: a run that attaches installs nothing, so that it can be played against engines from anywhere. The
// caller must leave the stage.
func newStage(ctx context.Context, o options) (*stage, error) {
	tandem, err := filepath.Abs(o.tandem)
	if err == nil {
		_, err = os.Stat(tandem)
	}
	if err != nil {
		return nil, fmt.Errorf("the binary under test: %w; `make build` makes it", err)
	}
	if o.cache == "" {
		if o.cache, err = pinned.Cache(); err != nil {
			return nil, err
		}
	}
	env := current.in(o.cache)
	if !o.simulate && o.attach == "" {
		if env, err = prepare(ctx, o.cache); err != nil {
			return nil, err
		}
	}
	work, err := os.MkdirTemp("", "tandem-vllm-")
	if err != nil {
		return nil, err
	}
	return &stage{tandem: tandem, env: env, work: work, options: o}, nil
}
