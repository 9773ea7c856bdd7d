// Command bench measures the cost of Tandem with engines that cost almost nothing, and writes
// build/bench.json.
//
// It starts four engines without latency, the built tandem and, for comparison, a plain net/http front that
// sends the same two legs without a decision. It loads the fronts in turn over raw sockets. It also runs
// the micro benchmarks of the planner and the hasher, and fills the block index as a large fleet would.
// Absolute figures vary with the machine: compare within one run of this program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-router/tandem/tools/bench/index"
)

// options is the command line.
//
// Long: one field per flag.
type options struct {
	tandem    string
	out       string
	upstream  string
	local     string
	runs      int
	conns     int
	phase     time.Duration
	only      string
	peerFlags string // more of the peer's command line
	before    string // another build of tandem
	profiles  string // folder for CPU profiles of tandem
	index     index.Plan
	litellm   bool   // part cache compares with LiteLLM
	timed     bool   // simulated engines take as long as real ones
	config    string // more of tandem's configuration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is main with explicit outputs: tables go to stdout, progress to stderr. This program also starts itself
// as a server; then the first argument names the server.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "engines":
			return runEngines(ctx, args[1:])
		case "reference":
			return runReference(ctx, args[1:])
		case "corpus":
			return index.Derive(args[1:])
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	b := &bench{o: o, out: stdout, log: stderr, samples: map[string][]float64{}}
	err = b.measure(ctx)
	if len(b.samples) == 0 || ctx.Err() != nil {
		return err
	}
	b.table(stdout)
	return errors.Join(err, b.write(o.out))
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.tandem, "tandem", "build/tandem", "the binary to measure")
	fs.StringVar(&o.out, "out", "build/bench.json", "file for the figures")
	fs.StringVar(&o.upstream, "upstream", "sim", `kind of engines: "sim" (simulated engines without latency) `+
		`or "neutral" (fixed answers; needs less CPU and leaves more of it to the fronts)`)
	fs.StringVar(&o.local, "local", "never",
		"tandem's setting local; never splits every request, as the reference does")
	fs.IntVar(&o.runs, "runs", 5, "measurements of each figure; the median is reported")
	fs.IntVar(&o.conns, "conns", 64, "connections under load")
	fs.DurationVar(&o.phase, "phase", 3*time.Second, "length of each measurement")
	fs.StringVar(&o.only, "only", "", "run one part: front, idle, micro, index, compare, peers or cache. The "+
		"last three run only when named: peers installs vllm-router, cache needs a Valkey or Redis server")
	fs.BoolVar(&o.litellm, "litellm", false, "part cache: compare with LiteLLM's cache in Redis; installs "+
		"LiteLLM's proxy (640 MB) into the user's cache folder")
	fs.StringVar(&o.before, "before", "", "another build of the binary, with which part compare compares")
	fs.StringVar(&o.peerFlags, "peer-flags", "", "more flags for vllm-router, separated by spaces")
	fs.StringVar(&o.profiles, "profiles", "",
		"parts compare and peers: folder for CPU profiles of tandem under load")
	trace := fs.String("trace", "",
		"conversation_trace.jsonl, gzipped, for part index; default: the built-in table made from it")
	resident := fs.String("blocks", "1,10", "part index: sizes of the index in million blocks")
	holders := fs.String("holders", "64,256", "part index: numbers of holders")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.upstream != "sim" && o.upstream != "neutral" || o.runs < 1 || o.conns < 1 {
		return o, errors.New("-upstream must be sim or neutral; -runs and -conns must be at least 1")
	}
	if len(chosen(o.only)) == 0 {
		return o, fmt.Errorf("-only %s: there is no such part", o.only)
	}
	o.index = index.Full(o.runs)
	o.index.Trace = *trace
	return o, errors.Join(numbers(&o.index.Resident, "blocks", *resident, 1_000_000),
		numbers(&o.index.Holders, "holders", *holders, 1))
}

// numbers reads a list of positive numbers, separated by commas, in the given unit.
func numbers(into *[]int, name, list string, unit int) error {
	*into = nil
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("-%s %s: want numbers from 1 on, separated by commas", name, list)
		}
		*into = append(*into, n*unit)
	}
	return nil
}

// bench collects samples by figure.
type bench struct {
	o       options
	out     io.Writer // tables
	log     io.Writer // progress
	samples map[string][]float64
	order   []string // names of figures in the order of their first samples
}

func (b *bench) add(name string, v float64) {
	if _, ok := b.samples[name]; !ok {
		b.order = append(b.order, name)
	}
	b.samples[name] = append(b.samples[name], v)
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// parts of the measurement, in order.
var parts = []struct {
	name  string
	run   func(*bench, context.Context) error
	asked bool // runs only when it is named
}{
	{"front", (*bench).front, false},
	{"idle", (*bench).idle, false},
	{"micro", (*bench).micro, false},
	{"index", (*bench).index, false},
	{"compare", (*bench).compare, true},
	{"peers", (*bench).peers, true}, // it installs vllm-router
	{"cache", (*bench).cache, true}, // it needs a Valkey or Redis server
}

// chosen returns the parts with the name only, or without a name all parts that run by default.
func chosen(only string) (names []string) {
	for _, p := range parts {
		if p.name == only || only == "" && !p.asked {
			names = append(names, p.name)
		}
	}
	return names
}

// measure runs all chosen parts. If a part fails, measure reports it and runs the others.
func (b *bench) measure(ctx context.Context) error {
	var errs []error
	names := chosen(b.o.only)
	for _, part := range parts {
		if !slices.Contains(names, part.name) {
			continue
		}
		err := part.run(b, ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			b.say("%s failed: %v", part.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return errors.Join(errs...)
}

// index measures the block index.
func (b *bench) index(ctx context.Context) error {
	return index.Measure(ctx, b.o.index, index.Report{Add: b.add, Say: b.say}, b.out)
}
