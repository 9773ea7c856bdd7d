package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// listener keeps an engine's published messages unchanged.
type listener struct {
	stop chan struct{}
	done chan struct{}

	mu       sync.Mutex // guards the following
	messages [][][]byte
	err      error
}

// listen subscribes to the events at endpoint until close.
func listen(endpoint string) (*listener, error) {
	z, err := zmq4.NewContext()
	if err != nil {
		return nil, err
	}
	sub, err := z.NewSocket(zmq4.SUB)
	if err == nil {
		err = errors.Join(sub.SetLinger(0), sub.SetRcvtimeo(50*time.Millisecond), sub.SetRcvhwm(100_000),
			sub.SetSubscribe(""), sub.Connect(endpoint))
	}
	if err != nil {
		return nil, err
	}
	l := &listener{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer func() { _ = z.Term() }()
		defer sub.Close()
		l.receive(sub)
	}()
	return l, nil
}

func (l *listener) receive(sub *zmq4.Socket) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		frames, err := sub.RecvMessageBytes(0)
		l.mu.Lock()
		switch {
		case err == nil:
			l.messages = append(l.messages, frames)
		case !nothingYet(err):
			l.err = err
		}
		l.mu.Unlock()
	}
}

func nothingYet(err error) bool {
	e := zmq4.AsErrno(err)
	return e == zmq4.Errno(syscall.EAGAIN) || e == zmq4.Errno(syscall.EINTR)
}

func (l *listener) close() {
	close(l.stop)
	<-l.done
}

// heard returns the messages so far.
func (l *listener) heard() ([][][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.messages), l.err
}

func (l *listener) count() int {
	m, _ := l.heard()
	return len(m)
}

// replayed asks, as a DEALER, for the batches from a sequence number on, and returns the replies with the end
// marker.
func replayed(endpoint string, from uint64) ([][][]byte, error) {
	return dialogue(zmq4.DEALER, endpoint, func(soc *zmq4.Socket) ([][][]byte, error) {
		if _, err := soc.SendMessage("", binary.BigEndian.AppendUint64(nil, from)); err != nil {
			return nil, err
		}
		var replies [][][]byte
		for {
			frames, err := soc.RecvMessageBytes(0)
			if err != nil {
				return replies, fmt.Errorf("after %d replies: %w", len(replies), err)
			}
			replies = append(replies, frames)
			if n := len(frames); n > 1 &&
				bytes.Equal(frames[n-2], binary.BigEndian.AppendUint64(nil, math.MaxUint64)) {
				return replies, nil
			}
		}
	})
}

// firstReply asks as a REQ, which can receive only one reply.
func firstReply(endpoint string, from uint64) ([][][]byte, error) {
	return dialogue(zmq4.REQ, endpoint, func(soc *zmq4.Socket) ([][][]byte, error) {
		if _, err := soc.SendBytes(binary.BigEndian.AppendUint64(nil, from), 0); err != nil {
			return nil, err
		}
		frames, err := soc.RecvMessageBytes(0)
		return [][][]byte{frames}, err
	})
}

func dialogue(
	kind zmq4.Type, endpoint string, talk func(*zmq4.Socket) ([][][]byte, error),
) ([][][]byte, error) {
	z, err := zmq4.NewContext()
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Term() }()
	soc, err := z.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	defer soc.Close()
	if err := errors.Join(soc.SetLinger(0), soc.SetRcvtimeo(10*time.Second), soc.SetRcvhwm(0),
		soc.Connect(endpoint)); err != nil {
		return nil, err
	}
	return talk(soc)
}

// story writes batches with their blocks named in the order of their first store, so engines with different
// hash seeds have the same story. Each batch must have the right frames and follow the batch before. It must
// equal, byte for byte, the output of Tandem's encoder, which is tested with captures.
type story struct {
	names map[kv.EngineHash]int
	lines []string
	seq   uint64 // of the last batch
	begun bool
}

func newStory() *story { return &story{names: make(map[kv.EngineHash]int)} }

// tell adds one live message.
func (s *story) tell(frames [][]byte) error {
	if len(frames) != 3 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return fmt.Errorf("frames of %s bytes, want a topic of none, a number of 8 and a payload",
			frameLengths(frames))
	}
	seq := binary.BigEndian.Uint64(frames[1])
	if s.begun && seq != s.seq+1 {
		return fmt.Errorf("batch %d follows batch %d", seq, s.seq)
	}
	s.begun, s.seq = true, seq
	var b kv.Batch
	stats, err := kvevents.Decode(frames[2], &b)
	if err != nil || stats != (kvevents.DecodeStats{}) {
		return fmt.Errorf("batch %d: %+v, %w", seq, stats, err)
	}
	if again := kvevents.Encode(nil, &kvevents.EncodeBatch{At: b.At, Rank: b.Rank, Events: b.Events},
		kvevents.Map); !bytes.Equal(again, frames[2]) {
		return fmt.Errorf("batch %d is not written as 0.32 did:\n got %x\nwant %x", seq, frames[2], again)
	}
	s.lines = append(s.lines, "batch")
	for i := range b.Events {
		s.event(&b.Events[i])
	}
	return nil
}

func (s *story) event(e *kv.Event) {
	var w strings.Builder
	switch e.Kind {
	case kv.Cleared:
		w.WriteString("clear")
	case kv.Removed:
		w.WriteString("remove")
		s.hashes(&w, e)
	case kv.Stored:
		h := fnv.New64a()
		for _, t := range e.Tokens {
			_ = binary.Write(h, binary.BigEndian, t)
		}
		w.WriteString("store")
		s.hashes(&w, e)
		parent := "-"
		if e.HasParent {
			parent = s.name(e.Parent)
		}
		fmt.Fprintf(&w, " after %s: %d tokens %x, blocks of %d, lora %q, kind %q, salt %q, extra %q", parent,
			len(e.Tokens), h.Sum64(), e.BlockSize, e.LoRA, e.SpecKind,
			e.Salt, e.Extra)
	}
	fmt.Fprintf(&w, ", tier %v, group %d", e.Tier, e.Group)
	s.lines = append(s.lines, w.String())
}

func (s *story) hashes(w *strings.Builder, e *kv.Event) {
	for _, h := range e.Hashes {
		w.WriteString(" " + s.name(h))
	}
}

func (s *story) name(h kv.EngineHash) string {
	n, ok := s.names[h]
	if !ok {
		n = len(s.names)
		s.names[h] = n
	}
	return fmt.Sprint("b", n)
}

// frameLengths are the lengths of frames.
func frameLengths(frames [][]byte) string {
	var all []string
	for _, f := range frames {
		all = append(all, fmt.Sprint(len(f)))
	}
	return strings.Join(all, ", ")
}

// framing describes replies to a replay by their frames: which frames are empty, where the 8-byte sequence
// number stands, counted from the first batch, and whether the payload equals the live one.
func framing(replies [][][]byte, live map[uint64][]byte, first uint64) string {
	var w strings.Builder
	for _, frames := range replies {
		for i, f := range frames {
			switch {
			case len(f) == 0:
				w.WriteString(`""`)
			case len(f) != 8 || i != len(frames)-2:
				fmt.Fprintf(&w, "live %t", bytes.Equal(f, live[binary.BigEndian.Uint64(frames[i-1])]))
			case binary.BigEndian.Uint64(f) == math.MaxUint64:
				w.WriteString("END")
			default:
				fmt.Fprintf(&w, "#%d", binary.BigEndian.Uint64(f)-first)
			}
			w.WriteString(" | ")
		}
		w.WriteString("\n")
	}
	return w.String()
}

// firstDifference shows the first different line of two stories, with a few equal lines before it; "" if they
// are equal.
func firstDifference(got, want []string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	if i == len(got) && i == len(want) {
		return ""
	}
	at := func(lines []string) string {
		return strings.Join(lines[max(0, min(i-3, len(lines))):min(i+10, len(lines))], "\n    ")
	}
	return fmt.Sprintf("line %d of %d and %d:\n  simulated\n    %s\n  real\n    %s",
		i, len(got), len(want), at(got), at(want))
}

// contents lists the blocks that messages store, by content: each line is the chain of a block's tokens, as
// far as known. The list is sorted, to compare stores in any order.
func contents(messages [][][]byte) ([]string, error) {
	var all []string
	type block struct {
		sum uint64
		// The salt of the first block of the chain. Only its event has the salt, and a prompt's blocks may
		// come in several events.
		salt string
	}
	chain := map[kv.EngineHash]block{}
	for _, frames := range messages {
		var b kv.Batch
		if _, err := kvevents.Decode(frames[len(frames)-1], &b); err != nil {
			return nil, err
		}
		for _, e := range b.Events {
			if e.Kind != kv.Stored {
				continue
			}
			before := chain[e.Parent]
			before.salt = cmp.Or(before.salt, e.Salt)
			for i, h := range e.Hashes {
				sum := fnv.New64a()
				_ = binary.Write(sum, binary.BigEndian, before.sum)
				_ = binary.Write(sum, binary.BigEndian, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize])
				before.sum = sum.Sum64()
				chain[h] = before
				all = append(all, fmt.Sprintf("%x salt %q", before.sum, before.salt))
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// batchOf counts the batches of got up to where it parts from want.
func batchOf(got, want []string) int {
	n := 0
	for i, line := range got {
		if i == len(want) || line != want[i] {
			break
		}
		if line == "batch" {
			n++
		}
	}
	return n
}
