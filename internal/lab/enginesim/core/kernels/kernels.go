// Package kernels predicts the duration of a vLLM step from measured kernel times, for one GPU type, model
// and tensor-parallel size.
//
// The tables come from LLMServingSim's profiler, in microseconds. The times of dense layers depend on tokens.
// Attention depends on the KV that it reads, the language model's head and the sampler on sequences, and a
// mixture of experts on tokens and experts.
package kernels

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Model is the part of a model's shape that the tables lack.
type Model struct {
	Name    string // as in the tables' file names
	Layers  int
	Hidden  int // width of a token between layers
	Experts int // per layer, 0 for a dense model
	TopK    int // experts per token
}

// Models returns the profiled models.
func Models() []Model {
	return []Model{
		{Name: "Llama-3.1-8B", Layers: 32, Hidden: 4096},
		{Name: "Qwen3-32B", Layers: 64, Hidden: 5120},
		{Name: "Qwen3-30B-A3B-Instruct-2507", Layers: 48, Hidden: 2048, Experts: 128, TopK: 8},
	}
}

// FindModel returns the model with this name.
func FindModel(name string) (Model, error) {
	for _, m := range Models() {
		if m.Name == name {
			return m, nil
		}
	}
	return Model{}, fmt.Errorf("the shape of model %q is not known", name)
}

// Tables are the measured times of one GPU type, model and tensor parallelism, in seconds.
type Tables struct {
	Model     Model
	layer     curve // dense parts of one layer, by tokens
	once      curve // embedding and last norm, by tokens
	head      curve // language model's head and sampler, by sequences
	attention attention
	experts   grid // by tokens and activated experts; nil for a dense model
}

// Tuning is what tables cannot know about a running engine. The zero Tuning trusts the tables.
type Tuning struct {
	Scale float64 // of all kernels; 0 is 1
	Host  float64 // s per step, for scheduling and launching
	Token float64 // s per token of a step, for moving the token between GPUs
}

// Rank is the work of one data-parallel rank in a step that all ranks make together. nil: no work.
type Rank = core.Batch

// Step returns the seconds of a step of the given ranks. They share their experts, so each waits for the
// others.
func (t *Tables) Step(ranks []*Rank, tune Tuning) float64 {
	slowest, tokens := 0.0, 0
	for _, b := range ranks {
		slowest = max(slowest, t.own(b))
		tokens += max(1, b.Tokens()) // a rank without work computes a dummy token for the others
	}
	kernels := slowest
	if t.experts != nil {
		kernels += float64(t.Model.Layers) * t.shared(tokens, len(ranks))
	}
	scale := tune.Scale
	if scale == 0 {
		scale = 1
	}
	return scale*kernels + tune.Host + tune.Token*float64(tokens)
}

// own returns the time that a rank needs for its own work.
func (t *Tables) own(b *Rank) float64 {
	tokens, sequences := float64(max(1, b.Tokens())), float64(max(1, b.Sequences()))
	layer := t.layer.at(tokens) + t.attention.at(b)
	return float64(t.Model.Layers)*layer + t.once.at(tokens) + t.head.at(sequences)
}

// shared returns a rank's time for one mixture of experts. The rank computes the tokens of all ranks that
// chose its experts. Tokens choose experts at random.
func (t *Tables) shared(tokens, ranks int) float64 {
	m := &t.Model
	local := float64(m.Experts) / float64(ranks)
	missed := 1.0 // probability that no token chose an expert
	for range min(tokens, 4096) {
		if missed *= 1 - float64(m.TopK)/float64(m.Experts); missed < 1e-6 {
			break
		}
	}
	return t.experts.capped(float64(tokens)/float64(ranks), local*(1-missed))
}

// Pace is the pace of a single engine.
type Pace struct {
	Tables *Tables
	Tuning Tuning
}

var _ core.Pace = Pace{}

// Took returns the time of a step.
func (p Pace) Took(b *core.Batch) time.Duration {
	return Seconds(p.Tables.Step([]*Rank{b}, p.Tuning))
}

// Seconds rounds to the clock's nanoseconds.
func Seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// check returns what is missing.
func (t *Tables) check() error {
	var err error
	for _, c := range []struct {
		what string
		n    int
	}{
		{"dense layers", len(t.layer.x)},
		{"embedding", len(t.once.x)},
		{"lm_head and sampler", len(t.head.x)},
		{"attention", len(t.attention.mixed.y)},
	} {
		if c.n == 0 {
			err = errors.Join(err, fmt.Errorf("no times for %s", c.what))
		}
	}
	if t.Model.Experts > 0 && t.experts == nil {
		err = errors.Join(err, errors.New("no times for the mixture of experts"))
	}
	return err
}
