// Command e2evllm compares Tandem with real vLLM. It installs vLLM for CPUs and makes a tiny model. It starts
// two prefill engines, two decode engines, and a reference engine that splits nothing. It sends the same
// requests through the built binary and to the reference, and compares the answers.
//
//	make e2e-vllm
//
// It needs Linux, Python 3.11, a package index, 7 GB of disk and 16 GB of memory; no GPU. Installed packages
// stay in the user's cache for the next run. Everything else is removed at the end, even after an interrupt.
// Exit code 0: all acts held; 1: an act failed or could not run.
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
	flag.StringVar(&o.cache, "cache", "", "`folder` of the installation (default: tandem in the user's cache)")
	flag.IntVar(&o.requests, "requests", 320,
		"`number` of requests whose answers are compared: half of them one at a time, "+
			"half of them eight at a time")
	flag.Uint64Var(&o.seed, "seed", 1, "another seed makes other requests")
	flag.StringVar(&o.keep, "keep", "", "`folder` for the logs if an act fails")
	flag.StringVar(&o.only, "only", "", "`acts` to play, separated by commas: "+actNames()+" (default: all)")
	flag.StringVar(&o.faults, "faults", "",
		"the `scenes` of the act faults, separated by commas: "+faultNames()+" (default: all)")
	flag.IntVar(&o.kills, "kills", usualKills,
		"of the act death, the `number` of times that a decode engine is killed; "+
			"more than the default needs a third decode engine")
	flag.StringVar(&o.stay, "stay", "",
		"play nothing: start engines, note them in this `file`, and keep them until interrupted")
	flag.StringVar(&o.stayWith, "fleet", pools.name, "the `fleet` that -stay starts")
	flag.StringVar(&o.attach, "attach", "",
		"play with the engines of this `file`, which a run with -stay wrote; install nothing, and leave "+
			"them standing")
	flag.BoolVar(&o.simulate, "sim", false, "play with simulated engines instead of real ones")
	flag.BoolVar(&o.lanes, "lanes", false,
		"play the acts of the fleet pools and the acts of all other fleets at the same time: "+
			"shorter if nine engines have enough cores and 20 GiB of memory")
	flag.StringVar(&o.lane, "lane", "", "the `lane` of this process, one of two that run side by side")
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

// keepToOneself keeps inherited files, such as a lock, from the engines, which may outlive this process.
func keepToOneself() {
	for fd := 3; fd < 64; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// say prints progress.
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

// newStage finds the binary under test and installs vLLM, unless all engines are simulated or run already. A
// run that attaches installs nothing, so it can use engines from anywhere. The caller must leave the stage.
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
