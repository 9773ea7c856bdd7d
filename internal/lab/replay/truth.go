package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core/kernels"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Recording is one run of a real vLLM: the requests, the settings, and the results if they were published.
type Recording struct {
	Name     string
	Profile  string // prefix of the kernel tables' files
	Ranks    int    // data-parallel ranks
	Tensor   int    // GPUs a rank
	Engine   core.Config
	Tables   *kernels.Tables
	Formula  *core.Cost // fitted to the tables and used instead; nil: the tables are used
	Requests []Sent
	Measured []Timing      // by request; nil without published results
	Span     time.Duration // from the start of the client to its end, by the file of settings
}

// Sent is one request of a run.
type Sent struct {
	At     time.Duration // when the client sent it
	Prompt []uint32
	Output int
}

// Timing has the times of a request's first and last token, from sending.
type Timing struct {
	First, Last time.Duration
	Output      int
}

// recorded are the runs in traces/vllm_ground_truth. A run with an empty GPU memory figure has more blocks
// than its batch can use: its settings do not say how many.
var recorded = []struct {
	name, profile, model, workload string
	blocks                         int
}{
	{
		"RTXPRO6000-Llama-3.1-8B", "RTXPRO6000_Llama-3.1-8B_tp1", "Llama-3.1-8B", "workload_llama31_8b",
		roomyBlocks,
	},
	{
		"RTXPRO6000-Qwen3-30B-A3B-Instruct-2507", "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507_tp1",
		"Qwen3-30B-A3B-Instruct-2507", "workload_qwen3", roomyBlocks,
	},
	{"RTX4090-Llama-3.1-8B", "RTX4090_Llama-3.1-8B_tp1", "Llama-3.1-8B", "workload_llama31_8b", 0},
	{"RTXPRO6000-Qwen3-32B", "RTXPRO6000_Qwen3-32B_tp2", "Qwen3-32B", "workload_qwen3", roomyBlocks},
}

// roomyBlocks is a lower bound of the KV blocks in 96 GB beside the weights of the models above: 400,000
// tokens.
const roomyBlocks = 25_000

// meta is a run's settings.
type meta struct {
	Engine struct {
		Tensor    int `json:"tensor_parallel_size"`
		Data      int `json:"data_parallel_size"`
		MaxSeqs   int `json:"max_num_seqs"`
		MaxTokens int `json:"max_num_batched_tokens"`
	} `json:"engine_kwargs"`
	Started  time.Time `json:"started_at"`
	Finished time.Time `json:"finished_at"`
	Cache    struct {
		Blocks    int `json:"num_gpu_blocks"`
		BlockSize int `json:"block_size"`
	} `json:"kv_cache"`
}

// ReadRecordings reads every recorded run of a folder like traces/vllm_ground_truth.
func ReadRecordings(folder fs.FS) ([]*Recording, error) {
	var all []*Recording
	for _, r := range recorded {
		rec := &Recording{Name: r.name, Profile: r.profile}
		if err := rec.read(folder, r.model, r.workload, r.blocks); err != nil {
			return nil, fmt.Errorf("run %s: %w", r.name, err)
		}
		all = append(all, rec)
	}
	return all, nil
}

func (r *Recording) read(folder fs.FS, model, workload string, blocks int) error {
	shape, err := kernels.FindModel(model)
	if err != nil {
		return err
	}
	r.Tables, err = kernels.Read(shape, func(table string) (io.ReadCloser, error) {
		return folder.Open("profile_" + r.Profile + "_" + table + ".csv.gz")
	})
	if err != nil {
		return err
	}
	text, err := fs.ReadFile(folder, "run_"+r.Name+"_meta.json")
	if err != nil {
		return err
	}
	var m meta
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	r.Span = m.Finished.Sub(m.Started)
	if m.Cache.Blocks > 0 {
		blocks = m.Cache.Blocks
	}
	if m.Engine.MaxSeqs < 1 || m.Engine.MaxTokens < 1 || m.Engine.Data < 1 || blocks < 1 || r.Span <= 0 {
		return fmt.Errorf("settings: %+v are not complete", m)
	}
	r.Ranks, r.Tensor = m.Engine.Data, m.Engine.Tensor
	r.Engine = core.Config{
		BlockSize: m.Cache.BlockSize, Blocks: blocks, MaxBatchedTokens: m.Engine.MaxTokens,
		MaxSeqs: m.Engine.MaxSeqs, Vocab: 1 << 17, NoEvents: true,
	}
	if err := r.readWorkload(folder, workload+".jsonl.gz"); err != nil {
		return err
	}
	return r.readResults(folder)
}

func (r *Recording) readWorkload(folder fs.FS, name string) (err error) {
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t, err := trace.Open(f, name, trace.Options{Format: trace.Workload})
	if err != nil {
		return err
	}
	all, err := t.All()
	if err != nil {
		return err
	}
	for i, s := range all {
		prompt := s.AppendTokens(nil, 0, s.AppendBlocks(nil, 0), uint64(i), 1<<17)
		r.Requests = append(r.Requests, Sent{At: s.At, Prompt: prompt, Output: s.Calls[0].Output})
	}
	return nil
}

// result is one recorded request. The arrival is by the client's clock, all other times are by the engine's.
type result struct {
	ID      string   `json:"request_id"`
	Input   int      `json:"input_toks"`
	Output  int      `json:"output_toks"`
	Arrival *float64 `json:"arrival_time"`
	Queued  *float64 `json:"queued_ts"`
	First   *float64 `json:"first_token_ts"`
	Last    *float64 `json:"last_token_ts"`
}

// readResults reads the results of the run, if they were published. Times count from the moment when the
// client sent the request. The two clocks are aligned by the request that reached the engine soonest, so
// times are too short by the one or two milliseconds of this request's way.
func (r *Recording) readResults(folder fs.FS) (err error) {
	name := "run_" + r.Name + "_requests.jsonl.gz"
	f, err := folder.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	all, err := readResultLines(f, name)
	if err != nil {
		return err
	}
	if len(all) != len(r.Requests) {
		return fmt.Errorf("%s: %d results of %d requests", name, len(all), len(r.Requests))
	}
	behind := *all[0].Queued - *all[0].Arrival
	for _, x := range all {
		behind = min(behind, *x.Queued-*x.Arrival)
	}
	start := *all[0].Arrival
	for i, x := range all {
		s := &r.Requests[i]
		if x.ID != fmt.Sprintf("bench-%d", i) || x.Input != len(s.Prompt) || x.Output != s.Output {
			return fmt.Errorf("%s:%d: %s has %d and %d tokens, the workload %d and %d",
				name, i+1, x.ID, x.Input, x.Output, len(s.Prompt), s.Output)
		}
		s.At = kernels.Seconds(*x.Arrival - start)
		r.Measured = append(r.Measured, Timing{
			kernels.Seconds(*x.First - *x.Arrival - behind), kernels.Seconds(*x.Last - *x.Arrival - behind), x.Output,
		})
	}
	return nil
}

func readResultLines(f io.Reader, name string) ([]result, error) {
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(name), err)
	}
	var all []result
	for d := json.NewDecoder(z); ; {
		var x result
		if err := d.Decode(&x); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, len(all)+1, err)
		}
		if x.Arrival == nil || x.Queued == nil || x.First == nil || x.Last == nil {
			return nil, fmt.Errorf("%s:%d: a time is missing", name, len(all)+1)
		}
		all = append(all, x)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no results", name)
	}
	return all, nil
}
