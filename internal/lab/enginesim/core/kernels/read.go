package kernels

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Open opens one table of a profile: "attention", "dense", "per_sequence" or "moe".
type Open func(table string) (io.ReadCloser, error)

// Read reads the tables of a model. Each is compressed with gzip.
func Read(m Model, open Open) (*Tables, error) {
	t := &Tables{Model: m}
	readers := []struct {
		table   string
		columns int
		take    func(rows [][]string, x [][]float64) error
	}{
		{"attention", 5, t.takeAttention},
		{"dense", 3, t.takeDense},
		{"per_sequence", 3, t.takeSequence},
		{"moe", 3, t.takeExperts},
	}
	if m.Experts == 0 {
		readers = readers[:3]
	}
	for _, r := range readers {
		names, numbers, err := rows(r.table, r.columns, open)
		if err != nil {
			return nil, err
		}
		if err := r.take(names, numbers); err != nil {
			return nil, fmt.Errorf("%s: %w", r.table, err)
		}
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("tables of %s: %w", m.Name, err)
	}
	return t, nil
}

const maxRows = 1 << 20

// rows reads a table. A column without a number is 0 in numbers.
func rows(table string, columns int, open Open) (names [][]string, numbers [][]float64, err error) {
	f, err := open(table)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", table, err)
	}
	r := csv.NewReader(z)
	r.FieldsPerRecord = columns
	for line := 1; len(names) < maxRows; line++ {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return names, numbers, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", table, err)
		}
		if line == 1 {
			continue
		}
		x, err := parse(fields)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", table, line, err)
		}
		names, numbers = append(names, fields), append(numbers, x)
	}
	return nil, nil, fmt.Errorf("%s: more than %d rows", table, maxRows)
}

func parse(fields []string) ([]float64, error) {
	x := make([]float64, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil && i > 0 || v < 0 || v != v {
			return nil, fmt.Errorf("column %d: %q is not a number", i+1, f)
		}
		x[i] = v
	}
	return x, nil
}

const micro = 1e-6

func (t *Tables) takeAttention(_ [][]string, x [][]float64) error {
	chunk := map[float64]map[float64]float64{}
	decode := map[float64]map[float64]float64{}
	mixed := map[[4]float64]float64{}
	for _, r := range x {
		switch s := r[4] * micro; {
		case r[2] == 0:
			put(chunk, r[0], r[1], s)
		case r[0] == 0:
			put(decode, r[2], r[3], s)
		default:
			mixed[[4]float64(r[:4])] = s
		}
	}
	if len(chunk) == 0 || len(decode) == 0 || len(mixed) == 0 {
		return errors.New("no rows with only prompts, with only decoding, or with both")
	}
	t.attention = attention{newGrid(chunk), newGrid(decode), newBox(mixed)}
	return nil
}

func put(m map[float64]map[float64]float64, x, y, s float64) {
	if m[x] == nil {
		m[x] = map[float64]float64{}
	}
	m[x][y] = s
}

// perLayer is how often a dense part runs per layer; 0: once per step.
var perLayer = map[string]float64{
	"qkv_proj": 1, "qk_norm": 1, "rotary_emb": 1, "o_proj": 1, "layernorm": 2, "gate_up_proj": 1, "act_fn": 1,
	"down_proj": 1,
	"embedding": 0, "final_layernorm": 0,
}

func (t *Tables) takeDense(names [][]string, x [][]float64) error {
	layer, once := map[float64]float64{}, map[float64]float64{}
	for i, r := range x {
		times, known := perLayer[names[i][0]]
		switch {
		case !known:
			return fmt.Errorf("unknown layer %q", names[i][0])
		case times == 0:
			once[r[1]] += r[2] * micro
		default:
			layer[r[1]] += times * r[2] * micro
		}
	}
	t.layer, t.once = newCurve(layer), newCurve(once)
	return nil
}

func (t *Tables) takeSequence(_ [][]string, x [][]float64) error {
	head := map[float64]float64{}
	for _, r := range x {
		head[r[1]] += r[2] * micro
	}
	t.head = newCurve(head)
	return nil
}

func (t *Tables) takeExperts(_ [][]string, x [][]float64) error {
	points := map[float64]map[float64]float64{}
	for _, r := range x {
		put(points, r[0], r[1], r[2]*micro)
	}
	if len(points) > 0 {
		t.experts = newGrid(points)
	}
	return nil
}
