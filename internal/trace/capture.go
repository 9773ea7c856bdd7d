package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// captureMark begins the first line of our own format:
//
//	{"tandem_trace":1,"block_size":16,"note":"..."}
//	{"t":0.25,"m":"llama","s":"a1","in":300,"out":20,"blocks":[17,4711,...]}
//
// t is seconds since the start, in the order of the file; m, s (the session, for whoever wants it) and what
// [Asked] has may be missing. blocks are identities of the prompt's full blocks of block_size tokens, and of
// the partial last one if that is known. Requests are played at their times, not in closed loops: what a
// client did between two of them was not seen.
const captureMark = `"tandem_trace"`

// CaptureVersion is the only version there is.
const CaptureVersion = 1

// CaptureHeader is the first line of a capture.
type CaptureHeader struct {
	Version   int    `json:"tandem_trace"`
	BlockSize int    `json:"block_size"` // 0: prompts have no identities
	Note      string `json:"note,omitempty"`
}

// CaptureEnd is the last line of a capture that a router streams; a trace on disk has none.
type CaptureEnd struct {
	Lost uint64 `json:"lost"` // requests that ended and are missing
}

// Captured is one request of a capture.
type Captured struct {
	T       float64 `json:"t"` // s since the start
	Model   string  `json:"m,omitempty"`
	Session string  `json:"s,omitempty"`
	Input   int     `json:"in"`
	Output  int     `json:"out"`
	Asked
	Blocks []uint64 `json:"blocks,omitempty"`
}

type capture struct {
	lines  *lines
	header *CaptureHeader
	last   time.Duration
}

func (c *capture) session() (*Session, error) {
	if c.header == nil {
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	line := Captured{T: -1}
	if err := c.lines.decode(&line); err != nil {
		return nil, err
	}
	at, err := c.lines.seconds("t", line.T)
	if err != nil {
		return nil, err
	}
	if at < c.last {
		return nil, c.lines.wrong("t", "goes back in time")
	}
	c.last = at
	size := c.header.BlockSize
	if size == 0 {
		size = maxTokens + 1
	}
	call, err := c.lines.flatCall(line.Input, line.Output, line.Blocks, size, [3]string{"in", "out", "blocks"})
	if err != nil {
		return nil, err
	}
	if line.Expects < 0 || line.Expects > maxTokens {
		return nil, c.lines.wrong("osl", "%d is no number of tokens", line.Expects)
	}
	call.Model, call.Asked = line.Model, line.Asked
	s := single(at, c.header.BlockSize, call)
	s.ID = line.Session
	return s, nil
}

func (c *capture) begin() error {
	h := new(CaptureHeader)
	if err := c.lines.decode(h); err != nil {
		if errors.Is(err, io.EOF) {
			return c.lines.wrong("", "there is no first line")
		}
		return err
	}
	switch {
	case h.Version != CaptureVersion:
		return c.lines.wrong("tandem_trace", "version %d, and only %d is known", h.Version, CaptureVersion)
	case h.BlockSize < 0 || h.BlockSize > maxTokens:
		return c.lines.wrong("block_size", "%d is no number of tokens", h.BlockSize)
	}
	c.header = h
	return nil
}

// CaptureWriter writes our own format.
type CaptureWriter struct {
	out *bufio.Writer
	enc *json.Encoder
}

// NewCaptureWriter writes the first line.
func NewCaptureWriter(w io.Writer, blockSize int, note string) (*CaptureWriter, error) {
	out := bufio.NewWriter(w)
	c := &CaptureWriter{out: out, enc: json.NewEncoder(out)}
	if err := c.enc.Encode(CaptureHeader{CaptureVersion, blockSize, note}); err != nil {
		return nil, fmt.Errorf("first line: %w", err)
	}
	return c, nil
}

// Write adds a request. Their times must not go back.
func (c *CaptureWriter) Write(r Captured) error { return c.enc.Encode(r) }

// Flush hands everything to the writer below.
func (c *CaptureWriter) Flush() error { return c.out.Flush() }
