package replay

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// file writes a small trace of n requests. Every second request repeats an earlier prompt.
func file(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range n {
		fmt.Fprintf(z, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d, %d]}`+"\n",
			i/5*3000, 1500, 20+i%7, i/2*2+1, i/2*2+2)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "sample.jsonl.gz")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPlayIsTheSameForASeed(t *testing.T) {
	p := Play{
		Trace: file(t, 200), Cluster: "2P3D", Profile: "8b", Policies: []string{"tandem", "lmetric"}, Seed: 3,
		EventLag: 50 * time.Millisecond,
	}
	var runs [2][]Outcome
	for i := range runs {
		var err error
		if runs[i], err = p.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for k := range runs[i] {
			runs[i][k].Seconds = 0
		}
	}
	if !reflect.DeepEqual(runs[0], runs[1]) {
		t.Errorf("two plays of one seed differ:\n%+v\n%+v", runs[0], runs[1])
	}
	for _, o := range runs[0] {
		if o.Requests != 200 || o.Measured >= 200 || o.Measured < 140 || o.Hit < 0.2 || o.Good < 0.9 ||
			o.TTFT.P50 <= 0 || o.TTFT.P99 < o.TTFT.P50 {
			t.Errorf("%+v", o)
		}
	}
	p.Seed = 4
	other, err := p.Run(t.Context(), nil)
	if err != nil || other[0].TTFT == runs[0][0].TTFT {
		t.Errorf("another seed gives the same run, %v", err)
	}
	var out bytes.Buffer
	if err := PrintOutcomes(&out, other); err != nil || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestPlayScales(t *testing.T) {
	p := Play{Trace: file(t, 100), Cluster: "1P1D", Profile: "8b", Policies: []string{"random"}}
	slow, err := p.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Scale = 4
	fast, err := p.Run(t.Context(), nil)
	if err != nil || fast[0].End > slow[0].End/3 || fast[0].TTFT.Mean <= slow[0].TTFT.Mean {
		t.Errorf("four times as dense: %v s instead of %v, TTFT %v instead of %v, %v",
			fast[0].End, slow[0].End, fast[0].TTFT.Mean, slow[0].TTFT.Mean, err)
	}
	p.For = 3 * time.Second
	part, err := p.Run(t.Context(), nil)
	if err != nil || part[0].Requests != 20 {
		t.Errorf("the first 3 s: %d requests, %v", part[0].Requests, err)
	}
	p.MaxLen = 1000
	if none, err := p.Run(t.Context(), nil); err != nil || none[0].Requests != 0 || none[0].LeftOut != 100 {
		t.Errorf("too long: %+v, %v", none, err)
	}
}

func TestPlayMistakes(t *testing.T) {
	good := file(t, 3)
	for _, tt := range []struct {
		p    Play
		want string
	}{
		{Play{Trace: good, Cluster: "8x8"}, `cluster "8x8": want a .yaml file, or a form like 8P8D`},
		{Play{Trace: good, Cluster: "1P0D"}, "1 to 1024"},
		{Play{Trace: good, Cluster: good + ".yaml"}, "no such file"},
		{Play{Trace: good, Profile: "tpu"}, `no profile "tpu"`},
		{Play{Trace: good, Policies: []string{"x"}}, `no policy "x"`},
		{Play{Trace: good + "x"}, "no such file"},
		{Play{Trace: good, Policies: []string{"round-robin", "x"}}, `no policy "x"`},
	} {
		played, err := tt.p.Run(t.Context(), func(policy string, _ time.Duration) {
			t.Errorf("%s was played before the error %q", policy, tt.want)
		})
		if len(played) > 0 || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d played, error %v, want %q", len(played), err, tt.want)
		}
	}
}

// Calculated by hand: the first fifth of ten seconds is the warm-up.
func TestSumByHand(t *testing.T) {
	p := Play{}.withDefaults()
	record := func(at, ttft, total time.Duration, output int) cluster.Record {
		return cluster.Record{At: at, TTFT: ttft, Total: total, Prompt: 100, Output: output, Cached: 40}
	}
	r := &cluster.Result{End: 20 * time.Second, Records: []cluster.Record{
		record(0, time.Hour, time.Hour, 1), record(2*time.Second, time.Second, 2*time.Second, 11),
		record(3*time.Second, 6*time.Second, 7*time.Second, 2),
		{At: 4 * time.Second, Refused: true},
		record(10*time.Second, 2*time.Second, 12*time.Second, 11),
	}}
	for i := range r.Records {
		r.Records[i].Session = i
	}
	// A late call of the last session does not change the warm-up.
	r.Records = append(r.Records, cluster.Record{At: time.Hour, Session: 4, Refused: true})
	r.Records[1].Prefill = -1
	r.Busy = [2][]time.Duration{{5 * time.Second, 15 * time.Second}, {time.Second}}
	o := p.sum("x", r)
	if o.Requests != 6 || o.Measured != 5 || o.Refused != 2 || o.Good != 0.2 || o.TTFT.Mean != 3 ||
		o.TTFT.P50 != 2 || o.Hit != 0.4 || o.Local != 0.2 {
		t.Errorf("%+v", o)
	}
	if o.Balance[0] != 1.5 || o.Busy[0] != 0.5 || o.TPOT.P50 != 1 {
		t.Errorf("%+v", o)
	}
}

// A request that is fast on average may have stood still. A refused request meets no goal.
func TestGoalsByHand(t *testing.T) {
	p := Play{}.withDefaults()
	record := func(ttft, perToken, gap time.Duration) cluster.Record {
		return cluster.Record{TTFT: ttft, Total: ttft + 10*perToken, Prompt: 1, Output: 11, Gap: gap}
	}
	r := &cluster.Result{End: time.Minute, Records: []cluster.Record{
		record(time.Second, 20*time.Millisecond, 100*time.Millisecond),   // meets both goals
		record(time.Second, 20*time.Millisecond, 300*time.Millisecond),   // has a gap above 0.2 s
		record(time.Second, 90*time.Millisecond, 2*time.Second),          // has a gap above 1 s
		record(4*time.Second, 20*time.Millisecond, 100*time.Millisecond), // late for the tight goal
		record(6*time.Second, 20*time.Millisecond, 100*time.Millisecond), // late for both goals
		record(time.Second, 110*time.Millisecond, 120*time.Millisecond),  // slow
		{TTFT: time.Second, Total: time.Second, Prompt: 1, Output: 1},    // has no gaps, and meets both goals
		{Refused: true}, {Failed: true}, {Refused: true},
	}}
	o := p.sum("x", r)
	if o.Good != 0.5 || o.Usual != 0.4 || o.Tight != 0.2 {
		t.Errorf("good %v, usual %v, tight %v", o.Good, o.Usual, o.Tight)
	}
	if o.Halting != 2./6 || o.Stuck != 1./6 || o.Gap.P50 != 0.11 {
		t.Errorf("gaps above 0.2 s %v, above 1 s %v, %+v", o.Halting, o.Stuck, o.Gap)
	}
	p.SLO = Tight
	if o := p.sum("x", r); o.Good != o.Tight {
		t.Errorf("the goal of the play: %v, the tight goal: %v", o.Good, o.Tight)
	}
}
