// Package tiers repeats records of llm-d, and plays Tandem's decision beside llm-d's: a fleet whose prefixes
// exceed the GPUs' memory, with host memory behind the GPUs and without, and the load of the precise guide.
//
// The steps, as files: record.go and guide.go have the set-ups, tiers.go plays and prints.
package tiers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// Arm is a fleet and a policy of the record.
type Arm struct {
	Name   string
	Policy string
	Tier   bool          // the prefill replicas have host memory
	Poll   time.Duration // between two load reports
	// What the record says, in seconds and requests a second: mean latency, its 90th percentile, mean TTFT, and
	// the rate of the last stage. Zeros: the arm is not in the record.
	Published [4]float64
}

// llm-d asks engines for their load every 50 ms, Tandem every second.
const theirPoll, ourPoll = 50 * time.Millisecond, time.Second

// Record is a published record, with Tandem beside it.
type Record struct {
	Arms  []Arm
	fleet func(Arm) cluster.Config
	load  func(seed uint64) staged
	span  time.Duration // of the load
}

// staged is a load in stages.
type staged interface {
	cluster.Source
	began() []time.Duration // when the stages that have begun did
}

// HostMemory is the record with host memory behind the GPUs: its three arms, and Tandem in both fleets.
func HostMemory() Record {
	return Record{
		fleet: func(a Arm) cluster.Config { return fleet(a.Tier) },
		load:  func(seed uint64) staged { return newLoad(seed) },
		span:  time.Duration(len(rates())) * (stage + pause),
		Arms:  arms(),
	}
}

func arms() []Arm {
	return []Arm{
		{"llm-d, no tier", "llm-d-tiers", false, theirPoll, [4]float64{9.100, 24.010, 7.404, 22.10}},
		{"llm-d, blind to the tier", "llm-d-tiers", true, theirPoll, [4]float64{4.144, 8.078, 2.288, 32.62}},
		{"llm-d, aware of it", "llm-d-tiers:cpu=0.4", true, theirPoll, [4]float64{2.390, 2.859, 0.491, 36.04}},
		{"Tandem, no tier", "tandem", false, ourPoll, [4]float64{}},
		{"Tandem, tier", "tandem", true, ourPoll, [4]float64{}},
	}
}

// Row is what became of an arm with one seed.
//
// Long: a field for each figure.
type Row struct {
	Arm      string    `json:"arm"`
	Seed     uint64    `json:"seed"`
	Latency  float64   `json:"latency_s"`
	P90      float64   `json:"latency_p90_s"`
	TTFT     float64   `json:"ttft_s"`
	Last     float64   `json:"last_stage_rps"` // requests a second of the last stage, until its last token
	TPOT     float64   `json:"tpot_s"`
	Hit      float64   `json:"hit"` // share of the prompts' tokens that were not computed
	Stages   []float64 `json:"stage_latency_p90_s"`
	Firsts   []float64 `json:"stage_ttft_s"`
	Restored float64   `json:"restored_gib"` // copied from host memory to the GPUs
	Saved    float64   `json:"offloaded_gib"`
	Refused  int       `json:"refused"`

	published [4]float64
}

// Options say what is played.
type Options struct {
	Record
	Seeds    int                              // at least 1
	Progress func(text string, share float64) // nil for nobody
}

// Run plays every arm with every seed.
func Run(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	for i, arm := range o.Arms {
		for seed := range o.Seeds {
			tell := func(at time.Duration) {
				if o.Progress != nil {
					share := at.Seconds() / o.span.Seconds()
					o.Progress(fmt.Sprintf("%s, seed %d, %v", arm.Name, seed+1, at),
						(float64(i)+(float64(seed)+min(1, share))/float64(o.Seeds))/float64(len(o.Arms)))
				}
			}
			row, err := o.play(ctx, arm, uint64(seed+1), tell)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", arm.Name, err)
			}
			rows = append(rows, *row)
		}
	}
	return rows, nil
}

func (o *Record) play(ctx context.Context, arm Arm, seed uint64, tell func(time.Duration)) (*Row, error) {
	c, load := o.fleet(arm), o.load(seed)
	c.Poll, c.Started = arm.Poll, tell
	router, err := policies.New(arm.Policy, c, seed)
	if err != nil {
		return nil, err
	}
	cl, err := cluster.New(c, router, load, seed)
	if err != nil {
		return nil, err
	}
	r, err := cl.Run(ctx)
	if err != nil {
		return nil, err
	}
	row := &Row{Arm: arm.Name, Seed: seed, published: arm.Published}
	row.sum(r, load.began())
	return row, nil
}

// sum adds up all requests: the records have no warm-up either. began are the beginnings of the stages.
func (row *Row) sum(r *cluster.Result, began []time.Duration) {
	var all []float64
	stages, firsts := make([][]float64, len(began)), make([][]float64, len(began))
	last, n := time.Duration(0), 0.0
	for i := range r.Records {
		x := &r.Records[i]
		if x.Refused || x.Failed {
			row.Refused++
			continue
		}
		n++
		all = append(all, x.Total.Seconds())
		which, exact := slices.BinarySearch(began, x.At)
		if !exact {
			which--
		}
		stages[which] = append(stages[which], x.Total.Seconds())
		firsts[which] = append(firsts[which], x.TTFT.Seconds())
		row.TTFT += x.TTFT.Seconds()
		row.TPOT += x.TPOT()
		row.Hit += float64(x.Cached) / float64(x.Prompt)
		last = max(last, x.At+x.Total)
	}
	for _, sum := range []*float64{&row.TTFT, &row.TPOT, &row.Hit} {
		*sum /= max(1, n)
	}
	for i := range stages {
		_, p90 := spread(stages[i])
		first, _ := spread(firsts[i])
		row.Stages, row.Firsts = append(row.Stages, p90), append(row.Firsts, first)
	}
	row.Latency, row.P90 = spread(all)
	row.Last = float64(len(stages[len(stages)-1])) / (last - began[len(began)-1]).Seconds()
	for _, e := range r.Engines[cluster.Prefill] {
		row.Restored += float64(e.Restored) * blockSize * tokenBytes / (1 << 30)
		row.Saved += float64(e.Offloaded) * blockSize * tokenBytes / (1 << 30)
	}
}

func spread(xs []float64) (mean, p90 float64) {
	if len(xs) == 0 {
		return 0, 0
	}
	slices.Sort(xs)
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	return mean, xs[min(len(xs)-1, len(xs)*9/10)]
}

// Print writes a table. Figures of the record stand in parentheses. The difference is of the latency, or of
// TTFT where no latency is published.
func Print(w io.Writer, rows []Row) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out,
		"| arm | latency s | off by | p90 s | TTFT s | last stage req/s | hit | restored GiB | refused |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	for i := range rows {
		x, p := &rows[i], rows[i].published
		off := "-"
		if p[0] > 0 {
			off = fmt.Sprintf("%+.0f %%", (x.Latency/p[0]-1)*100)
		} else if p[2] > 0 {
			off = fmt.Sprintf("%+.0f %%", (x.TTFT/p[2]-1)*100)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %.0f %% | %.0f | %d |\n", x.Arm,
			beside(x.Latency, p[0]), off, beside(x.P90, p[1]), beside(x.TTFT, p[2]), beside(x.Last, p[3]),
			x.Hit*100, x.Restored, x.Refused)
	}
	return out.Flush()
}

// beside is a figure with the published one behind it.
func beside(x, published float64) string {
	if published == 0 {
		return fmt.Sprintf("**%.3g**", x)
	}
	return fmt.Sprintf("**%.3g** (%.3g)", x, published)
}

var _ staged = (*load)(nil)
