package trace

import "time"

// workload reads what was sent to a recorded vLLM run. Its identities are of 16-token blocks over the prompt
// and the answer; those of the answer are dropped, since nothing asks for them again.
type workload struct {
	lines *lines
	last  time.Duration
}

const workloadBlock = 16

type workloadLine struct {
	In      int      `json:"in"`
	Out     int      `json:"out"`
	Arrival *int64   `json:"arrival_ns"`
	IDs     []uint64 `json:"hash_ids"`
}

// session keeps the times as they are: what a run recorded is told by the same clock.
func (w *workload) session() (*Session, error) {
	var line workloadLine
	if err := w.lines.decode(&line); err != nil {
		return nil, err
	}
	if line.Arrival == nil {
		return nil, w.lines.wrong("arrival_ns", "is missing")
	}
	at, err := w.lines.seconds("arrival_ns", float64(*line.Arrival)/1e9)
	if err != nil {
		return nil, err
	}
	if at < w.last {
		return nil, w.lines.wrong("arrival_ns", "goes back in time")
	}
	w.last = at
	if err := w.lines.fits("hash_ids", line.In+line.Out, len(line.IDs), workloadBlock); err != nil {
		return nil, err
	}
	prompt := line.IDs[:min(len(line.IDs), max(0, line.In)/workloadBlock)]
	c, err := w.lines.flatCall(line.In, line.Out, prompt, workloadBlock, [3]string{"in", "out", "hash_ids"})
	if err != nil {
		return nil, err
	}
	return single(at, workloadBlock, c), nil
}
