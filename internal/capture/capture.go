// Package capture is the recorded form of traffic: the lines that a router writes and that replay reads.
//
// A capture is a file of JSON lines:
//
//	{"tandem_trace":1,"block_size":16,"note":"..."}
//	{"t":0.25,"m":"llama","s":"a1","in":300,"out":20,"blocks":[17,4711,...]}
//
// t is in seconds since the start of the capture and never goes back. m (model), s (session) and the fields
// of [Asked] are optional. blocks has an identity for each full block of the prompt, each of block_size
// tokens, and one for the partial last block where it is known.
package capture

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Version is the only version there is.
const Version = 1

// Header is the first line of a capture.
type Header struct {
	Version   int    `json:"tandem_trace"`
	BlockSize int    `json:"block_size"` // 0: prompts have no identities
	Note      string `json:"note,omitempty"`
}

// End is the last line of a capture that a router streams; a trace on disk has none.
type End struct {
	Lost uint64 `json:"lost"` // requests that ended and are missing
}

// Request is one request of a capture.
type Request struct {
	T       float64 `json:"t"` // s since the start
	Model   string  `json:"m,omitempty"`
	Session string  `json:"s,omitempty"`
	Input   int     `json:"in"`
	Output  int     `json:"out"`
	Asked
	Blocks []uint64 `json:"blocks,omitempty"`
}

// Asked is what a request shows about the length of its answer besides its prompt, as far as it is recorded.
type Asked struct {
	Tenant  string `json:"u,omitempty"`     // the tenant, under any name
	API     string `json:"api,omitempty"`   // last word of the API's path
	Tools   bool   `json:"tools,omitempty"` // the answer may be a tool call
	Form    bool   `json:"form,omitempty"`  // the answer must keep to a form
	Stops   bool   `json:"stops,omitempty"` // the client sent stop words
	Expects int    `json:"osl,omitempty"`   // tokens that the client expects in the answer, 0 for no hint
}

// Writer writes our own format.
type Writer struct {
	out *bufio.Writer
	enc *json.Encoder
}

// NewWriter writes the first line.
func NewWriter(w io.Writer, blockSize int, note string) (*Writer, error) {
	out := bufio.NewWriter(w)
	c := &Writer{out: out, enc: json.NewEncoder(out)}
	if err := c.enc.Encode(Header{Version, blockSize, note}); err != nil {
		return nil, fmt.Errorf("first line: %w", err)
	}
	return c, nil
}

// Write adds a request. Their times must not go back.
func (c *Writer) Write(r Request) error { return c.enc.Encode(r) }

// Flush hands everything to the writer below.
func (c *Writer) Flush() error { return c.out.Flush() }
