package index

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// traceBlock is the number of tokens per hash of the conversation trace.
const traceBlock = 512

// turn is one request of the conversation trace without its text: its lengths, and the earlier turn with
// which it shares its beginning.
type turn struct {
	like int // the earlier turn that first had the last shared block, -1 without shared blocks
	kept int // shared leading blocks of traceBlock tokens
	in   int // tokens of the prompt
	out  int // tokens of the answer
}

// conversation is the table of turns in order of arrival, as gzip of encodeTurns's output. `bench corpus`
// derived it from conversation_trace.jsonl of Mooncake's FAST'25 release (github.com/kvcache-ai/Mooncake,
// Apache-2.0; Qin et al., FAST'25): one hour of chat, 12,031 requests. Times and block ids are left out.
//
//go:embed conversation.gz
var conversation []byte

// corpus returns the turns of the trace file at path, or the built-in ones if path is "".
func corpus(path string) ([]turn, error) {
	if path == "" {
		z, err := gzip.NewReader(bytes.NewReader(conversation))
		if err != nil {
			return nil, err
		}
		return decodeTurns(bufio.NewReader(z))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return readTrace(z)
}

// readTrace reads a trace in Mooncake's published form, one JSON object per line. Equal ids mean equal
// content and equal blocks before, so the last known id of a turn identifies all earlier blocks.
func readTrace(r io.Reader) ([]turn, error) {
	var all []turn
	first := map[int]int{} // id to the first turn with it
	for in := json.NewDecoder(r); ; {
		var line struct {
			Input  int   `json:"input_length"`
			Output int   `json:"output_length"`
			IDs    []int `json:"hash_ids"`
		}
		if err := in.Decode(&line); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("trace line %d: %w", len(all)+1, err)
		}
		t := turn{like: -1, in: line.Input, out: line.Output}
		for i, id := range line.IDs {
			if at, seen := first[id]; seen {
				t.like, t.kept = at, i+1
			} else {
				first[id] = len(all)
			}
		}
		all = append(all, t)
	}
}

// encodeTurns writes varints: the number of turns, then for each turn the distance to its like (0: none),
// kept, in and out.
func encodeTurns(turns []turn) []byte {
	out := binary.AppendUvarint(nil, uint64(len(turns)))
	for i, t := range turns {
		back := 0
		if t.like >= 0 {
			back = i - t.like
		}
		for _, n := range []int{back, t.kept, t.in, t.out} {
			out = binary.AppendUvarint(out, uint64(n))
		}
	}
	return out
}

func decodeTurns(r io.ByteReader) ([]turn, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	var all []turn
	for i := range int(n) {
		var f [4]uint64
		for j := range f {
			if f[j], err = binary.ReadUvarint(r); err != nil {
				return nil, fmt.Errorf("turn %d of %d: %w", i, n, err)
			}
		}
		t := turn{like: i - int(f[0]), kept: int(f[1]), in: int(f[2]), out: int(f[3])}
		if f[0] == 0 {
			t.like = -1
		}
		all = append(all, t)
	}
	return all, nil
}

// Derive writes the built-in table anew from a trace file: the command line is -trace FILE -out FILE.
func Derive(args []string) error {
	fs := flag.NewFlagSet("corpus", flag.ContinueOnError)
	trace := fs.String("trace", "", "conversation_trace.jsonl, gzipped")
	out := fs.String("out", "tools/bench/index/conversation.gz", "file for the table")
	if err := fs.Parse(args); err != nil {
		return err
	}
	turns, err := corpus(*trace)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(encodeTurns(turns)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(*out, b.Bytes(), 0o644)
}
