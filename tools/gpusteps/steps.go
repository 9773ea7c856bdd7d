package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// step is a line of steps.py: a batch of streams, each with context tokens of KV, and a chunk of a prompt.
type step struct {
	GPU, Model    string
	New, Computed int // tokens of the chunk (0: no chunk), and of the prompt before the chunk
	Streams       int
	Context       int
	Seconds       float64
	Attention     float64 // included in Seconds
}

func (s *step) batch() core.Batch {
	b := core.Batch{Decode: s.Streams, Context: s.Streams * s.Context}
	if s.New > 0 {
		b.Chunks = []core.Chunk{{New: s.New, Computed: s.Computed}}
	}
	return b
}

// mixed reports whether the step has both a prompt and streams.
func (s *step) mixed() bool { return s.New > 0 && s.Streams > 0 }

// readFile reads the lines of a file, which may be gzip.
func readFile(name string) ([]step, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var r io.Reader = bytes.NewReader(data)
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	steps, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return steps, nil
}

func read(r io.Reader) (steps []step, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(steps)+1, err)
		}
		if s.Seconds <= 0 || s.New+s.Streams <= 0 {
			return nil, fmt.Errorf("line %d: want a step with a time above 0", len(steps)+1)
		}
		steps = append(steps, s)
	}
	return steps, lines.Err()
}

// byModel groups steps by GPU and model, in the order of the lines.
func byModel(steps []step) [][]step {
	var parts [][]step
	for _, s := range steps {
		at := slices.IndexFunc(parts, func(p []step) bool { return p[0].GPU == s.GPU && p[0].Model == s.Model })
		if at < 0 {
			at, parts = len(parts), append(parts, nil)
		}
		parts[at] = append(parts[at], s)
	}
	return parts
}

// fit is the formula with the least error for prompts alone and for streams alone.
func fit(steps []step) (core.Cost, error) {
	var batches []core.Batch
	var seconds []float64
	prompts, streams := 0, 0
	for i := range steps {
		s := &steps[i]
		switch {
		case s.mixed():
			continue
		case s.New > 0:
			prompts++
		default:
			streams++
		}
		batches, seconds = append(batches, s.batch()), append(seconds, s.Seconds)
	}
	if prompts < 3 || streams < 3 {
		return core.Cost{}, errors.New("fewer than three steps of prompts alone, or of streams alone")
	}
	return core.FitCost(batches, seconds), nil
}

// ratios are the times of the wanted steps divided by the formula's times, in order.
func ratios(steps []step, cost core.Cost, wanted func(*step) bool) (r []float64) {
	for i := range steps {
		if s := &steps[i]; wanted(s) {
			b := s.batch()
			r = append(r, s.Seconds/cost.Seconds(&b))
		}
	}
	slices.Sort(r)
	return r
}
