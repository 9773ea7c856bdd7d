package trace

import (
	"fmt"
	"time"
)

// weka reads agents' sessions: closed loops of calls, sub-agents among them. Times within a session are kept
// as think times.
type weka struct {
	lines *lines
	n     uint64
}

type wekaSession struct {
	ID        string     `json:"id"`
	BlockSize int        `json:"block_size"`
	Tool      int        `json:"tool"`
	Sys       int        `json:"sys"`
	Reqs      []wekaCall `json:"reqs"`
}

// wekaCall is a request, or a sub-agent: nested requests of the same id space, from t on.
type wekaCall struct {
	T     *float64   `json:"t"`
	In    int        `json:"in"`
	Out   int        `json:"out"`
	Model string     `json:"m"`
	Think float64    `json:"think"` // s of client time before it
	API   float64    `json:"api"`   // s that the real service took
	P     *int       `json:"p"`
	Keep  int        `json:"keep"`
	New   [][2]int64 `json:"new"`

	Sub  []wekaCall `json:"sub"`
	Tool int        `json:"tool"`
	Sys  int        `json:"sys"`
}

func (w *weka) session() (*Session, error) {
	var line wekaSession
	if err := w.lines.decode(&line); err != nil {
		return nil, err
	}
	switch {
	case line.BlockSize < 1 || line.BlockSize > maxTokens:
		return nil, w.lines.wrong("block_size", "%d is no number of tokens", line.BlockSize)
	case len(line.Reqs) == 0:
		return nil, w.lines.wrong("reqs", "there are none")
	}
	w.n++
	b := wekaBuilder{
		lines: w.lines, salt: mix(w.n, 0x77656b61), s: &Session{ID: line.ID, BlockSize: line.BlockSize},
	}
	if err := b.agent("reqs", line.Reqs, -1, 0, line.Tool, line.Sys); err != nil {
		return nil, err
	}
	return b.s, nil
}

// wekaBuilder flattens one session.
type wekaBuilder struct {
	lines *lines
	s     *Session
	salt  uint64
	full  []int // identities of each call
}

// agent adds the calls of one agent, which starts delay after the end of the call before. A sub-agent runs
// beside the calls behind it. In the data its time overlaps theirs. The call that waited for the sub-agent
// has a think time that covers the sub-agent's run.
func (b *wekaBuilder) agent(
	path string, calls []wekaCall, before int, delay time.Duration, tool, sys int,
) error {
	last, ended := before, 0.0 // call of this agent, and when it was over by the recording
	for i := range calls {
		c := &calls[i]
		field := fmt.Sprintf("%s[%d]", path, i)
		if c.T == nil {
			return b.lines.wrong(field+".t", "is missing")
		}
		wait := c.Think
		if c.Sub != nil {
			wait = max(0, *c.T-ended)
		}
		after, err := b.lines.seconds(field+".think", wait)
		if err != nil {
			return err
		}
		if last == before {
			after += delay
		}
		if c.Sub != nil {
			err = b.agent(field+".sub", c.Sub, last, after, c.Tool, c.Sys)
		} else {
			err = b.call(field, c, last, after, tool, sys)
			last, ended = len(b.s.Calls)-1, *c.T+max(0, c.API)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *wekaBuilder) call(field string, c *wekaCall, after int, think time.Duration, tool, sys int) error {
	in, err := b.lines.tokens(field+".in", c.In, 1)
	if err != nil {
		return err
	}
	out, err := b.lines.tokens(field+".out", c.Out, 0)
	if err != nil {
		return err
	}
	if len(b.s.Calls) >= maxCalls {
		return b.lines.wrong(field, "more than %d calls", maxCalls)
	}
	call := Call{After: after, Think: think, Input: in, Output: out, Model: c.Model, parent: -1, salt: b.salt}
	if err := b.blocks(field, c, &call); err != nil {
		return err
	}
	if blocks := (tool + sys) / b.s.BlockSize; tool >= 0 && sys >= 0 && blocks > 0 {
		call.prefix = &head{mixString(mix(uint64(tool), uint64(sys)), c.Model), blocks}
	}
	b.s.Calls = append(b.s.Calls, call)
	return nil
}

// blocks takes over what the prompt consists of.
func (b *wekaBuilder) blocks(field string, c *wekaCall, call *Call) error {
	total := int64(c.Keep)
	if c.P != nil && *c.P >= 0 {
		if *c.P >= len(b.full) {
			return b.lines.wrong(field+".p", "%d is no earlier call", *c.P)
		}
		call.parent = int32(*c.P)
	}
	if c.Keep < 0 || c.Keep > 0 && (call.parent < 0 || c.Keep > b.full[call.parent]) {
		return b.lines.wrong(field+".keep", "%d blocks that there are not", c.Keep)
	}
	call.keep = int32(c.Keep)
	for _, r := range c.New {
		if r[0] < 0 || r[1] < 0 || r[1] > maxTokens {
			return b.lines.wrong(field+".new", "%v is no run of blocks", r)
		}
		call.runs = append(call.runs, run{uint64(r[0]), int32(r[1])})
		if total += r[1]; total > maxTokens {
			return b.lines.wrong(field+".new", "too many blocks")
		}
	}
	b.full = append(b.full, int(total))
	return b.lines.fits(field+".new", c.In, int(total), b.s.BlockSize)
}
