package trace

import (
	"errors"
	"io"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
)

// captureMark begins the first line of Tandem's own format, which package capture describes. A captured
// request is played at its time, not in a closed loop, because the capture does not know what a client waited
// for.
const captureMark = `"tandem_trace"`

type captureReader struct {
	lines  *lines
	header *capture.Header
	last   time.Duration
}

func (c *captureReader) session() (*Session, error) {
	if c.header == nil {
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	line := capture.Request{T: -1}
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

func (c *captureReader) begin() error {
	h := new(capture.Header)
	if err := c.lines.decode(h); err != nil {
		if errors.Is(err, io.EOF) {
			return c.lines.wrong("", "there is no first line")
		}
		return err
	}
	switch {
	case h.Version != capture.Version:
		return c.lines.wrong("tandem_trace", "version %d, and only %d is known", h.Version, capture.Version)
	case h.BlockSize < 0 || h.BlockSize > maxTokens:
		return c.lines.wrong("block_size", "%d is no number of tokens", h.BlockSize)
	}
	c.header = h
	return nil
}
