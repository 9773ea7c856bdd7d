// Package kernels predicts how long a step of a vLLM takes from measured times of its kernels, for one GPU
// type, model and tensor parallelism.
//
// The tables come from LLMServingSim's profiler, in microseconds. A dense layer's time depends on tokens, and
// attention's on what it reads. The time of the language model's head and of the sampler depends on
// sequences. The time of a mixture of experts depends on tokens and experts.
package kernels

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// Model is what of a model's shape the tables do not say.
type Model struct {
	Name    string // as the tables' file names have it
	Layers  int
	Hidden  int // width of a token between layers
	Experts int // of a layer, 0 for a dense model
	TopK    int // experts a token
}

// Models are those that have been profiled.
func Models() []Model {
	return []Model{
		{Name: "Llama-3.1-8B", Layers: 32, Hidden: 4096},
		{Name: "Qwen3-32B", Layers: 64, Hidden: 5120},
		{Name: "Qwen3-30B-A3B-Instruct-2507", Layers: 48, Hidden: 2048, Experts: 128, TopK: 8},
	}
}

// FindModel is the model with this name.
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

// Tuning is what tables cannot know of a running engine. The zero Tuning trusts them.
type Tuning struct {
	Scale float64 // of all kernels; 0 is 1
	Host  float64 // s a step, of scheduling and launching
	Token float64 // s a token of a step, of moving it between GPUs
}

// Rank is what one data-parallel rank computes in a step that all ranks make together; nil stands for one
// without work.
type Rank = core.Batch

// Step returns the seconds of a step of the given ranks, which share their experts and so wait for each
// other.
func (t *Tables) Step(ranks []*Rank, tune Tuning) float64 {
	slowest, tokens := 0.0, 0
	for _, b := range ranks {
		slowest = max(slowest, t.own(b))
		tokens += max(1, b.Tokens()) // one without work computes a dummy token, so that the others can go on
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

// own is what a rank computes by itself.
func (t *Tables) own(b *Rank) float64 {
	tokens, sequences := float64(max(1, b.Tokens())), float64(max(1, b.Sequences()))
	layer := t.layer.at(tokens) + t.attention.at(b)
	return float64(t.Model.Layers)*layer + t.once.at(tokens) + t.head.at(sequences)
}

// shared is what a rank computes of one mixture of experts: of the tokens of all ranks those that go to its
// part of the experts. A token chooses experts as if by chance.
func (t *Tables) shared(tokens, ranks int) float64 {
	m := &t.Model
	local := float64(m.Experts) / float64(ranks)
	missed := 1.0 // chance that nobody chose an expert
	for range min(tokens, 4096) {
		if missed *= 1 - float64(m.TopK)/float64(m.Experts); missed < 1e-6 {
			break
		}
	}
	return t.experts.capped(float64(tokens)/float64(ranks), local*(1-missed))
}

// Pace is one engine by itself.
type Pace struct {
	Tables *Tables
	Tuning Tuning
}

var _ core.Pace = Pace{}

// Took is the time of a step.
func (p Pace) Took(b *core.Batch) time.Duration {
	return Seconds(p.Tables.Step([]*Rank{b}, p.Tuning))
}

// Seconds rounds to the clock's nanoseconds.
func Seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// check says what is missing.
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
			err = errors.Join(err, fmt.Errorf("no times of %s", c.what))
		}
	}
	if t.Model.Experts > 0 && t.experts == nil {
		err = errors.Join(err, errors.New("no times of the mixture of experts"))
	}
	return err
}
