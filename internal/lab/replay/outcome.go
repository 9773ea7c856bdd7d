package replay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// Outcome is the result of a play with one policy. Except for totals it ignores requests in the first fifth
// of the time in which sessions start, because caches fill then.
type Outcome struct {
	Policy   string    `json:"policy"`
	Requests int       `json:"requests"`          // in the whole play
	Measured int       `json:"measured"`          // requests after the warm-up
	Refused  int       `json:"refused"`           // measured requests without an answer
	Failed   int       `json:"failed"`            // measured requests whose clients got an error
	Retried  int       `json:"retried"`           // measured requests with a failed attempt
	LeftOut  int       `json:"sessions_left_out"` // sessions that do not fit the engines
	TTFT     Quantiles `json:"ttft_s"`
	TPOT     Quantiles `json:"tpot_s"`
	E2E      Quantiles `json:"e2e_s"`
	Good     float64   `json:"good"`       // share of the measured requests within the SLO
	Usual    float64   `json:"good_usual"` // share within [Usual]
	Tight    float64   `json:"good_tight"` // share within [Tight]
	// The longest gap between two tokens, of each answer with at least two tokens, and the shares of answers
	// with a gap above 0.2 s and above 1 s.
	Gap     Quantiles `json:"longest_gap_s"`
	Halting float64   `json:"gap_above_200ms"`
	Stuck   float64   `json:"gap_above_1s"`
	// Share of prompt tokens that were cached, as the replicas that prefilled reported.
	Hit   float64 `json:"hit"`
	Local float64 `json:"local"` // share of requests that a decode replica prefilled
	// Busy time of the busiest replica divided by the mean, by side.
	Balance [2]float64 `json:"max_over_mean_busy"`
	// Mean share of the time in which replicas of a side were busy.
	Busy      [2]float64      `json:"busy"`
	Moved     float64         `json:"moved_gb"`
	Transfer  float64         `json:"transfer_s"` // mean of the transfers
	Preempted uint64          `json:"preempted"`
	End       float64         `json:"virtual_s"` // until the last token
	Steps     int             `json:"steps"`
	Seconds   float64         `json:"wall_s"`
	Stats     *policies.Stats `json:"decisions,omitempty"` // Tandem's
	Classes   []Part          `json:"classes,omitempty"`
	Tenants   []Part          `json:"tenants,omitempty"`
}

// Quantiles of a figure.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

func quantiles(xs []float64) Quantiles {
	s := spread(xs) // sorts
	if len(xs) == 0 {
		return Quantiles{}
	}
	return Quantiles{s.Mean, s.P50, quantile(xs, 0.9), s.P99}
}

// warmUp is the divisor of the time that is not counted.
const warmUp = 5 // a fifth

// WarmUp is the time from which requests are counted: a fifth of the time in which sessions start. It is no
// share of the whole play, because a few sessions may last ten times as long as all others.
func WarmUp(rs []cluster.Record) time.Duration {
	begun := map[int]time.Duration{}
	for i := range rs {
		if at, ok := begun[rs[i].Session]; !ok || rs[i].At < at {
			begun[rs[i].Session] = rs[i].At
		}
	}
	last := time.Duration(0)
	for _, at := range begun {
		last = max(last, at)
	}
	return last / warmUp
}

// sum makes the outcome of a result.
func (p *Play) sum(name string, r *cluster.Result) *Outcome {
	o := &Outcome{Policy: name, Requests: len(r.Records), End: r.End.Seconds(), Steps: r.Steps}
	from := WarmUp(r.Records)
	var t tally
	var measured []*cluster.Record
	for i := range r.Records {
		if x := &r.Records[i]; x.At >= from {
			t.add(x, p.goal(x))
			measured = append(measured, x)
		}
	}
	t.into(o)
	p.parts(o, measured)
	for side := range r.Busy {
		o.Balance[side], o.Busy[side] = balance(r.Busy[side], r.End)
		for _, st := range r.Engines[side] {
			o.Preempted += st.Preemptions
		}
	}
	return o
}

// tally adds records up.
type tally struct {
	samples  samples
	requests requestCounts
	work     tokenSums
	transfer time.Duration
}

// samples have one value per request.
type samples struct {
	ttft, tpot, e2e, gap []float64
}

// requestCounts are numbers of requests.
type requestCounts struct {
	all, refused, good, local int
	usual, tight              int
	halting, stuck            int
	failed, retried           int
}

// tokenSums are sums of tokens.
type tokenSums struct {
	prompt, cached, moved, many float64
}

func (t *tally) add(x *cluster.Record, slo SLO) {
	t.requests.all++
	if x.Failures > 0 {
		t.requests.retried++
	}
	switch {
	case x.Refused:
		t.requests.refused++
		return
	case x.Failed:
		t.requests.failed++
		return
	}
	t.samples.ttft, t.samples.e2e = append(t.samples.ttft, x.TTFT.Seconds()),
		append(t.samples.e2e, x.Total.Seconds())
	if x.Output > 1 {
		t.stream(x)
	}
	count(&t.requests.good, slo.Keeps(x))
	count(&t.requests.usual, Usual.Keeps(x))
	count(&t.requests.tight, Tight.Keeps(x))
	if x.Prefill < 0 {
		t.requests.local++
	} else {
		t.work.many++
		t.work.moved += float64(x.Moved)
		t.transfer += x.Transfer
	}
	t.work.prompt += float64(x.Prompt)
	t.work.cached += float64(x.Cached)
}

// stream adds the figures that need an answer with more than one token.
func (t *tally) stream(x *cluster.Record) {
	t.samples.tpot, t.samples.gap = append(t.samples.tpot, x.TPOT()), append(t.samples.gap, x.Gap.Seconds())
	count(&t.requests.halting, x.Gap > 200*time.Millisecond)
	count(&t.requests.stuck, x.Gap > time.Second)
}

func count(n *int, so bool) {
	if so {
		*n++
	}
}

func (t *tally) into(o *Outcome) {
	share := func(n, of int) float64 { return float64(n) / float64(max(of, 1)) }
	o.Usual, o.Tight = share(t.requests.usual, t.requests.all), share(t.requests.tight, t.requests.all)
	o.Gap = quantiles(t.samples.gap)
	o.Halting, o.Stuck = share(t.requests.halting, len(t.samples.gap)),
		share(t.requests.stuck, len(t.samples.gap))
	o.Measured, o.Refused = t.requests.all, t.requests.refused
	o.Failed, o.Retried = t.requests.failed, t.requests.retried
	o.TTFT = quantiles(t.samples.ttft)
	o.TPOT = quantiles(t.samples.tpot)
	o.E2E = quantiles(t.samples.e2e)
	o.Good, o.Local = float64(t.requests.good)/float64(max(t.requests.all, 1)),
		float64(t.requests.local)/float64(max(t.requests.all, 1))
	o.Hit = t.work.cached / max(t.work.prompt, 1)
	o.Moved = t.work.moved / 1e9
	o.Transfer = t.transfer.Seconds() / max(t.work.many, 1)
}

// balance returns the busy time of the busiest replica divided by the mean, and the mean share of busy time.
func balance(busy []time.Duration, end time.Duration) (most, mean float64) {
	if len(busy) == 0 || end == 0 {
		return 0, 0
	}
	sum := time.Duration(0)
	for _, b := range busy {
		sum += b
	}
	mean = sum.Seconds() / float64(len(busy))
	if mean == 0 {
		return 0, 0
	}
	return slices.Max(busy).Seconds() / mean, mean / end.Seconds()
}

// PrintOutcomes writes a table.
func PrintOutcomes(w io.Writer, all []Outcome) error {
	out := bufio.NewWriter(w)
	width := 16
	for _, o := range all {
		width = max(width, len(o.Policy))
	}
	fmt.Fprintf(out, "%-*s %31s %24s %7s %7s %7s %9s %7s %6s %6s %6s %11s %11s %8s %8s %6s %6s %6s\n",
		width, "policy", "TTFT s mean/p50/p90/p99", "TPOT ms p50/p90/p99", "good", "usual", "tight", "gap s p99",
		">0.2 s", ">1 s", "hit", "local", "busy P/D",
		"max/mean", "moved GB", "refused", "errors", "preem.", "wall s")
	for _, o := range all {
		fmt.Fprintf(out, "%-*s %31s %24s %6.1f%% %6.1f%% %6.1f%% %9.3g %6.1f%% %5.1f%% %5.1f%% %5.1f%% "+
			"%11s %11s %8.0f %8d %6d %6d %6.1f\n", width,
			o.Policy,
			fmt.Sprintf("%.3g/%.3g/%.3g/%.3g", o.TTFT.Mean, o.TTFT.P50, o.TTFT.P90, o.TTFT.P99),
			fmt.Sprintf("%.1f/%.1f/%.1f", o.TPOT.P50*1e3, o.TPOT.P90*1e3, o.TPOT.P99*1e3), o.Good*100,
			o.Usual*100, o.Tight*100, o.Gap.P99, o.Halting*100, o.Stuck*100, o.Hit*100, o.Local*100,
			fmt.Sprintf("%.0f%%/%.0f%%", o.Busy[0]*100, o.Busy[1]*100), fmt.Sprintf("%.2f/%.2f",
				o.Balance[0], o.Balance[1]), o.Moved, o.Refused, o.Failed, o.Preempted, o.Seconds)
	}
	printParts(out, all, width)
	return out.Flush()
}

// Ideal measures the work of p for engines that share one cache that never forgets. The engines are like the
// first prefill replica, or like the first decode replica without a prefill pool. Arrivals are scaled as in
// p.
func (p Play) Ideal() (x *cluster.Ideal, err error) {
	p = p.withDefaults()
	fleet, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	source, err := p.open(fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	nodes := fleet.Nodes[cluster.Prefill]
	if len(nodes) == 0 {
		nodes = fleet.Nodes[cluster.Decode]
	}
	return cluster.Measure(source, nodes[0].Engine)
}
