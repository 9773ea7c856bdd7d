package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
)

// Validation compares simulated engines with one recorded run.
type Validation struct {
	Run        string         `json:"run"`
	Tuning     kernels.Tuning `json:"tuning"`
	From       string         `json:"tuning_from"` // how the tuning was found
	Calibrated int            `json:"calibrated_on_requests"`
	// Figures of the requests after the calibrated ones, or of all requests.
	Simulated Figures  `json:"simulated"`
	Measured  *Figures `json:"measured,omitempty"` // of the same; nil where results were kept back
	Errors    *Figures `json:"relative_error,omitempty"`
	Untuned   *Figures `json:"relative_error_of_tables_alone,omitempty"` // of the same requests
	Worst     float64  `json:"worst_error,omitempty"`
	Makespan  float64  `json:"makespan_s"` // from the first request to the last token
	Timings   []Timing `json:"-"`
}

// CalibratedShare is the part of a run's requests to which the tuning is fitted. The others only judge the
// result.
const CalibratedShare = 3 // a third

// MaxError is the largest allowed relative error of a validated engine, in any figure.
const MaxError = 0.05

// Assumptions about links between GPUs, which no run shows separately.
const (
	collectiveSetup = 15e-6 // s of a collective operation, whatever its size
	tokenBytes      = 2     // of one number of a token between layers: bf16
)

// Validate calibrates and simulates every run of a folder like traces/vllm_ground_truth, with the laws of
// conservation checked after every step.
//
// A run without results borrows the tuning of a measured run. One number of this tuning is fitted to the
// client's run time, which is the only result in the run's settings. The number is the bandwidth between GPUs
// if the model is split over several, else the host's time per step.
//
// With formula, steps take the time of the simulated engines' formula, fitted to the tables.
func Validate(folder fs.FS, formula bool, progress func(string)) ([]Validation, error) {
	all, err := ReadRecordings(folder)
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		if formula {
			all[i] = r.byFormula()
		}
	}
	var out []Validation
	measured := map[*Recording]kernels.Tuning{}
	for _, r := range all {
		progress(r.Name)
		v, err := r.validate(all, measured)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", r.Name, err)
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *Recording) validate(all []*Recording, known map[*Recording]kernels.Tuning) (Validation, error) {
	v := Validation{Run: r.Name, From: "its first third", Calibrated: len(r.Measured) / CalibratedShare}
	var err error
	if r.Measured == nil {
		v.Tuning, v.From = r.borrow(all, known)
		v.From += " and how long the client ran"
		if v.Tuning, err = r.fitSpan(v.Tuning, all); err != nil {
			return v, err
		}
	} else if v.Tuning, err = r.calibrate(v.Calibrated, r.Ranks > 1); err != nil {
		return v, err
	}
	known[r] = v.Tuning
	if v.Timings, err = r.simulate(v.Tuning, true); err != nil {
		return v, err
	}
	v.Makespan = r.makespan(v.Timings)
	v.Simulated = figures(v.Timings[v.Calibrated:])
	if r.Measured == nil {
		return v, nil
	}
	m := figures(r.Measured[v.Calibrated:])
	v.Measured, v.Errors = &m, new(v.Simulated.errors(m))
	v.Worst = v.Errors.worst()
	raw, err := r.simulate(kernels.Tuning{Scale: 1}, false)
	if err != nil {
		return v, err
	}
	v.Untuned = new(figures(raw[v.Calibrated:]).errors(m))
	return v, nil
}

// borrow makes a tuning from the tunings of measured runs.
func (r *Recording) borrow(all []*Recording, known map[*Recording]kernels.Tuning) (kernels.Tuning, string) {
	tune, from := kernels.Tuning{Scale: 1}, "the tables alone"
	for _, o := range all {
		if t, ok := known[o]; ok && o.Measured != nil && o.Ranks == 1 {
			tune, from = t, o.Name
			break
		}
	}
	if r.Tensor < 2 {
		return tune, from
	}
	for _, o := range all {
		t, ok := known[o]
		if !ok || o.Measured == nil || o.Ranks < 2 || t.Token == 0 {
			continue
		}
		tune.Token = t.Token * float64(r.moved()) / float64(o.moved())
		tune.Host += collectiveSetup * 2 * float64(r.Tables.Model.Layers)
		from += fmt.Sprintf("; %g us a collective assumed", collectiveSetup*1e6)
	}
	return tune, from
}

// makespan returns the seconds from the first request to the last token.
func (r *Recording) makespan(ts []Timing) float64 {
	last := 0.0
	for i, t := range ts {
		last = max(last, (r.Requests[i].At + t.Last - r.Requests[0].At).Seconds())
	}
	return last
}

// fitSpan fits one number of tune so that the simulated run lasts as long as the client ran. It first
// subtracts the time that clients of measured runs with as many ranks spent on other work.
func (r *Recording) fitSpan(tune kernels.Tuning, all []*Recording) (kernels.Tuning, error) {
	besides, n := 0.0, 0
	for _, o := range all {
		if o.Measured != nil && o.Ranks == r.Ranks {
			besides += o.Span.Seconds() - o.makespan(o.Measured)
			n++
		}
	}
	want := r.Span.Seconds() - besides/float64(max(n, 1))
	number, high := &tune.Host, 0.05
	if r.Tensor > 1 {
		number, high = &tune.Token, 1e-3
	}
	low := 0.0
	for range 14 {
		*number = (low + high) / 2
		got, err := r.simulate(tune, false)
		if err != nil {
			return tune, err
		}
		if r.makespan(got) < want {
			low = *number
		} else {
			high = *number
		}
	}
	return tune, nil
}

// moved is the number of bytes per token of a step that move between GPUs: twice in each layer, all-reduced
// over two GPUs, or gathered from and scattered to two ranks.
func (r *Recording) moved() int {
	m := r.Tables.Model
	return 2 * m.Layers * m.Hidden * tokenBytes
}

// Print writes the table of vs.
func Print(w io.Writer, vs []Validation) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%-42s %-9s %28s %28s %28s\n",
		"run", "", "TTFT mean / p50 / p99", "TPOT mean / p50 / p99", "E2E mean / p50 / p99")
	for _, v := range vs {
		fmt.Fprintf(out, "%-42s %-9s %s\n", v.Run, "simulated", v.Simulated.text(seconds))
		if v.Measured != nil {
			fmt.Fprintf(out, "%-42s %-9s %s\n", "", "measured", v.Measured.text(seconds))
			fmt.Fprintf(out, "%-42s %-9s %s\n", "", "error", v.Errors.text(percent))
			fmt.Fprintf(out, "%-42s %-9s %s\n", "", "untuned", v.Untuned.text(percent))
		}
		fmt.Fprintf(out, "%-42s scale %.3f, %.2f ms a step, %.1f us a token, from %s; makespan %.1f s\n",
			"", v.Tuning.Scale, v.Tuning.Host*1e3, v.Tuning.Token*1e6, v.From, v.Makespan)
	}
	return out.Flush()
}

func seconds(s float64) string { return fmt.Sprintf("%.4g", s) }
func percent(s float64) string { return fmt.Sprintf("%+.1f %%", s*100) }

func (f Figures) text(unit func(float64) string) string {
	var text strings.Builder
	for _, s := range []Spread{f.TTFT, f.TPOT, f.E2E} {
		text.WriteString(fmt.Sprintf(" %28s", unit(s.Mean)+" / "+unit(s.P50)+" / "+unit(s.P99)))
	}
	return text.String()[1:]
}

// Check returns an error that names every figure with an error above [MaxError].
func Check(vs []Validation) error {
	var err error
	measured := 0
	for _, v := range vs {
		if v.Errors == nil {
			continue
		}
		measured++
		if !(v.Worst <= MaxError) {
			err = errors.Join(err,
				fmt.Errorf("run %s: worst error %.1f %%, at most %.0f %% wanted", v.Run, v.Worst*100, MaxError*100))
		}
	}
	if measured == 0 {
		err = errors.New("no run with results")
	}
	return err
}

// Prediction is one line of a file of predictions.
type Prediction struct {
	Run     string  `json:"run"`
	Request string  `json:"request_id"`
	TTFT    float64 `json:"ttft_s"`
	TPOT    float64 `json:"tpot_s"`
	E2E     float64 `json:"e2e_s"`
}

// WritePredictions writes a line for each request of the runs without published results.
func WritePredictions(w io.Writer, vs []Validation) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, v := range vs {
		if v.Measured != nil {
			continue
		}
		for i, t := range v.Timings {
			p := Prediction{
				Run: v.Run, Request: fmt.Sprintf("bench-%d", i), TTFT: t.First.Seconds(), E2E: t.Last.Seconds(),
			}
			if t.Output > 1 {
				p.TPOT = round((t.Last - t.First).Seconds() / float64(t.Output-1))
			}
			if err := enc.Encode(p); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// round to the clock's nanoseconds.
func round(s float64) float64 { return math.Round(s*float64(time.Second)) / float64(time.Second) }
