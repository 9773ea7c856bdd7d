package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Steps that compute a prompt beside streams are measured with these numbers of streams and prompt tokens,
// each this often. A prompt of mixedBase tokens measures the cost of a request beside its tokens.
var (
	mixedStreams = []int{1, 4, 8, 16}
	mixedPrompts = []int{mixedBase, 512, 1024, 2048, 4096, 8192}
)

const (
	mixedBase    = 64
	mixedTimes   = 5
	mixedContext = 16384
	mixedSteps   = 40 // of the streams before a prompt comes
	mixedWithin  = 0.3
)

// mixing is an engine that computes a prompt in one step, whatever else runs.
var mixing = &fleet{"mixing", func() []*engine {
	return []*engine{{
		Name: "ref", Blocks: 4096, Flags: []string{
			"--max-num-batched-tokens", strconv.Itoa(mixedContext), "--max-model-len",
			strconv.Itoa(mixedContext),
			"--hf-overrides", fmt.Sprintf(`{"max_position_embeddings":%d}`, mixedContext),
			"--no-enable-prefix-caching",
		},
	}}
}}

// mixed measures the time of a step that computes a prompt beside streams. It compares this time with the
// simulator's formula (internal/lab/enginesim/core, Cost), fitted to prompts alone and streams alone.
func mixed(ctx context.Context, s *stage) error {
	m := &mixedMeasure{ctx: ctx, s: s, g: newGenerator(s.seed + 16000)}
	if _, err := m.prompt(mixedPrompts[len(mixedPrompts)-1]); err != nil { // the first is slow
		return err
	}
	f, err := m.formula()
	if err != nil {
		return err
	}
	ratios, err := m.table(f)
	if err != nil {
		return err
	}
	slices.Sort(ratios)
	usual := ratios[len(ratios)/2]
	say("mixed: the gap is %.2f times the formula's, from %.2f to %.2f; %s",
		usual, ratios[0], ratios[len(ratios)-1], f)
	if math.Abs(usual-1) > mixedWithin {
		return fmt.Errorf("the median step takes %.2f times the formula's time", usual)
	}
	return nil
}

// table prints the measured steps beside the formula's, and returns the ratios.
func (m *mixedMeasure) table(f stepFormula) (ratios []float64, err error) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "streams\tprompt\tlongest gap, ms\tformula\tgap over it\tprompt alone\t")
	for _, n := range mixedStreams {
		err := m.beside(n, func(b *streamGroup) error {
			for _, tokens := range mixedPrompts[1:] {
				gap, err := m.gap(b, tokens)
				if err != nil {
					return err
				}
				said := f.mixed(n, tokens)
				ratios = append(ratios, gap/said)
				fmt.Fprintf(t, "%d\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t\n",
					n, tokens, gap*1e3, said*1e3, gap/said, f.prompt(tokens)*1e3)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		say("mixed: %d streams done", n)
	}
	_ = t.Flush()
	return ratios, nil
}

// mixedMeasure measures an engine.
type mixedMeasure struct {
	ctx context.Context
	s   *stage
	g   *generator
}

// prompt returns the seconds that the engine takes for a new prompt and one token.
func (m *mixedMeasure) prompt(tokens int) (float64, error) {
	body := map[string]any{
		"model": modelName, "prompt": m.g.ids(tokens), "max_tokens": 1, "temperature": 0,
	}
	begun := time.Now()
	status, text, err := submit(m.ctx, m.s.reference().url()+completions, body)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a prompt of %d tokens: %d %.300s", tokens, status, text)
	}
	return time.Since(begun).Seconds(), err
}

// formula fits the simulator's formula to prompts alone and to streams alone.
func (m *mixedMeasure) formula() (f stepFormula, err error) {
	var rows [][3]float64
	var took []float64
	for _, tokens := range mixedPrompts {
		var all []float64
		for range mixedTimes {
			t, err := m.prompt(tokens)
			if err != nil {
				return f, err
			}
			all = append(all, t)
		}
		n := float64(tokens)
		rows, took = append(rows, [3]float64{1, n, n * n / 2}), append(took, median(all))
	}
	x := core.LeastSquares(rows, took)
	f.request = x[0]
	f.token = x[1]
	f.attention = x[2]
	var few, many float64
	for _, of := range []struct {
		streams int
		step    *float64
	}{{mixedStreams[0], &few}, {mixedStreams[len(mixedStreams)-1], &many}} {
		if err := m.beside(of.streams, func(b *streamGroup) error {
			*of.step, err = b.step(m.ctx)
			return err
		}); err != nil {
			return f, err
		}
	}
	first, last := mixedStreams[0], mixedStreams[len(mixedStreams)-1]
	f.stream = max(0, (many-few)/float64(last-first))
	f.step = few - f.stream*float64(first)
	return f, nil
}

// stepFormula is the simulator's formula, in seconds. Beside its tokens, a request costs an otherwise empty
// step and the server's work for the request. This work does not delay streams.
type stepFormula struct {
	request, token, attention float64 // of prompts: each, for each token, for each pair of tokens
	step, stream              float64 // of streams: each step, and each stream in the step
}

func (f stepFormula) String() string {
	return fmt.Sprintf("a prompt alone %.1f ms + %.1f us a token + %.2f ns a pair, "+
		"a step %.1f ms + %.2f ms a stream",
		f.request*1e3, f.token*1e6, f.attention*1e9, f.step*1e3, f.stream*1e3)
}

func (f stepFormula) prompt(tokens int) float64 {
	n := float64(tokens)
	return f.request + f.token*n + f.attention*n*n/2
}

func (f stepFormula) mixed(streams, tokens int) float64 {
	n, s := float64(tokens), float64(streams)
	return f.step + f.token*n + f.attention*n*n/2 + f.stream*s
}

// gap returns the longest gap that a prompt causes in the median stream, as the median of several prompts.
func (m *mixedMeasure) gap(b *streamGroup, tokens int) (float64, error) {
	var all []float64
	for range mixedTimes {
		if err := b.goOn(m.ctx, mixedSteps); err != nil {
			return 0, err
		}
		begun := time.Now()
		if _, err := m.prompt(tokens); err != nil {
			return 0, err
		}
		if err := b.goOn(m.ctx, 3); err != nil {
			return 0, err
		}
		all = append(all, b.longest(begun))
	}
	return median(all), nil
}

// beside runs f while n streams run.
func (m *mixedMeasure) beside(n int, f func(*streamGroup) error) error {
	ctx, stop := context.WithCancel(m.ctx)
	b := &streamGroup{came: make([][]time.Time, n), ended: make(chan error, n)}
	var wg sync.WaitGroup
	for i := range n {
		body := map[string]any{
			"model": modelName, "prompt": m.g.ids(mixedBase), "temperature": 0, "stream": true,
			"max_tokens": mixedContext - 2*mixedBase, "ignore_eos": true,
		}
		wg.Go(func() { b.ended <- b.listen(ctx, i, m.s.reference().url()+completions, body) })
	}
	err := b.goOn(m.ctx, mixedSteps)
	if err == nil {
		err = f(b)
	}
	stop()
	wg.Wait()
	return err
}

// streamGroup is a group of streams that run at the same time.
type streamGroup struct {
	mu    sync.Mutex
	came  [][]time.Time // arrival of each token, by stream
	ended chan error
}

// listen reads a stream until ctx ends.
func (b *streamGroup) listen(ctx context.Context, i int, url string, body any) error {
	resp, err := post(ctx, url, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("a stream: %d %.300s", resp.StatusCode, text)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte("data: {")) {
			b.mu.Lock()
			b.came[i] = append(b.came[i], time.Now())
			b.mu.Unlock()
		}
	}
	return cmp.Or(lines.Err(), errors.New("a stream ended while it was measured"))
}

// goOn waits until every stream has this many more tokens.
func (b *streamGroup) goOn(ctx context.Context, tokens int) error {
	want := b.counts()
	for i := range want {
		want[i] += tokens
	}
	for {
		done := true
		for i, n := range b.counts() {
			done = done && n >= want[i]
		}
		if done {
			return nil
		}
		select {
		case err := <-b.ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (b *streamGroup) counts() (n []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, came := range b.came {
		n = append(n, len(came))
	}
	return n
}

// step returns the seconds between two tokens of the median stream.
func (b *streamGroup) step(ctx context.Context) (float64, error) {
	if err := b.goOn(ctx, 4*mixedSteps); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []float64
	for _, came := range b.came {
		came = came[len(came)-4*mixedSteps:]
		for i := range came[1:] {
			all = append(all, came[i+1].Sub(came[i]).Seconds())
		}
	}
	return median(all), nil
}

// longest returns the longest gap since begun of the median stream.
func (b *streamGroup) longest(begun time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []float64
	for _, came := range b.came {
		longest := 0.0
		for i := len(came) - 1; i > 0 && came[i].After(begun); i-- {
			longest = max(longest, came[i].Sub(came[i-1]).Seconds())
		}
		all = append(all, longest)
	}
	return median(all)
}

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
