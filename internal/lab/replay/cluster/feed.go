package cluster

import (
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// feed holds the block events of one engine on their way to the router. The engine overwrites its events in
// the next step, so feed copies them. It reuses its memory.
type feed struct {
	seq   uint64
	line  []*parcel // on their way, oldest first
	spare []*parcel
}

// parcel is one message.
type parcel struct {
	batch  kv.Batch
	hashes []kv.EngineHash
	tokens []kv.Token
}

// pack copies events into a parcel.
func (f *feed) pack(events []kv.Event, at time.Duration) {
	p := new(parcel)
	if n := len(f.spare); n > 0 {
		p, f.spare = f.spare[n-1], f.spare[:n-1]
	}
	f.seq++
	p.batch.Seq = f.seq
	p.batch.At = Time(at)
	p.batch.Events = append(p.batch.Events[:0], events...)
	p.hashes, p.tokens = p.hashes[:0], p.tokens[:0]
	for i := range events {
		p.hashes = append(p.hashes, events[i].Hashes...)
		p.tokens = append(p.tokens, events[i].Tokens...)
	}
	h, t := 0, 0
	for i := range p.batch.Events { // only now, because append may have moved the slices
		e := &p.batch.Events[i]
		e.Hashes, h = p.hashes[h:h+len(e.Hashes)], h+len(e.Hashes)
		e.Tokens, t = p.tokens[t:t+len(e.Tokens)], t+len(e.Tokens)
	}
	f.line = append(f.line, p)
}

// unpack returns the oldest batch. It is valid until the next pack.
func (f *feed) unpack() *kv.Batch {
	p := f.line[0]
	copy(f.line, f.line[1:])
	f.line = f.line[:len(f.line)-1]
	f.spare = append(f.spare, p)
	return &p.batch
}
