package kvevents

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// DecodeStats counts what Decode met beside plain events.
type DecodeStats struct {
	Unknown   int // events with a tag we do not know, skipped
	Malformed int // events of a known tag that could not be read, skipped
	Lost      int // malformed removals: the sink may believe in blocks that are gone
}

// Errors of an event or a batch that is valid msgpack but has an unknown shape.
var (
	errShape = errors.New("not the shape of a KV event")
	errBatch = errors.New("not the shape of a KV event batch")
)

// Decode reads one msgpack batch into into, whose slices it reuses. Seq is left alone, and Rank is -1 if the
// batch does not name a rank.
//
// Decode reads arrays and maps at both levels, and hashes as unsigned, signed or bytes. It skips unknown
// trailing elements, keys and tags. An error means that the payload is not msgpack or not a batch; the
// events before the fault are then in into. Memory is bounded by a small multiple of the payload. Strings
// are copied out of payload; nothing refers to payload afterwards.
func Decode(payload []byte, into *kv.Batch) (DecodeStats, error) {
	d := decoder{walker: walker{rest: payload}, into: into}
	into.At = time.Time{}
	into.Rank = -1
	into.Events = into.Events[:0]
	err := d.batch()
	if err != nil {
		err = fmt.Errorf("decode KV events at byte %d of %d: %w", len(payload)-len(d.rest), len(payload), err)
	}
	return d.stats, err
}

type decoder struct {
	walker
	into  *kv.Batch
	stats DecodeStats
}

// batch reads [ts, events, rank, …], or the map of the same, which a development branch of vLLM writes.
func (d *decoder) batch() error {
	v, err := d.next()
	switch {
	case err != nil:
		return err
	case v.kind == kindArray:
		return d.batchArray(v.n)
	case v.kind == kindMap:
		return d.batchMap(v.n)
	}
	return errBatch
}

func (d *decoder) batchArray(n uint64) error {
	if n < 2 {
		return errBatch
	}
	if err := d.at(); err != nil {
		return err
	}
	if err := d.events(); err != nil {
		return err
	}
	if n == 2 {
		return nil
	}
	if err := d.rank(); err != nil {
		return err
	}
	return d.skipN(n - 3)
}

func (d *decoder) batchMap(n uint64) error {
	for range n {
		name, err := d.name()
		if err != nil {
			return err
		}
		if err := d.batchField(name); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) batchField(name []byte) error {
	switch string(name) {
	case "ts":
		return d.at()
	case "events":
		d.into.Events = d.into.Events[:0]
		return d.events()
	case "data_parallel_rank":
		return d.rank()
	}
	return d.skip()
}

func (w *walker) skipN(n uint64) error {
	for range n {
		if err := w.skip(); err != nil {
			return err
		}
	}
	return nil
}

// at reads the engine's time stamp: Unix seconds as a float. A time stamp that no calendar holds reads as
// the zero time.
func (d *decoder) at() error {
	span, err := d.span()
	if err != nil {
		return err
	}
	v, _ := (&walker{rest: span}).next()
	switch v.kind {
	case kindFloat:
		d.into.At = fromSeconds(math.Float64frombits(v.n))
	case kindUint:
		d.into.At = fromSeconds(float64(v.n))
	}
	return nil
}

func fromSeconds(s float64) time.Time {
	if !(s > -1e11 && s < 1e11) { // NaN too
		return time.Time{}
	}
	whole, frac := math.Modf(s)
	return time.Unix(int64(whole), int64(math.Round(frac*1e9)))
}

func float64bits(bits32 uint32) uint64 {
	return math.Float64bits(float64(math.Float32frombits(bits32)))
}

func (d *decoder) rank() error {
	span, err := d.span()
	if err != nil {
		return err
	}
	if v, _ := (&walker{rest: span}).next(); v.kind == kindUint && v.n <= math.MaxInt32 {
		d.into.Rank = int(v.n)
	}
	return nil
}

func (d *decoder) events() error {
	v, err := d.next()
	if err != nil {
		return err
	}
	if v.kind != kindArray {
		return errBatch
	}
	for range v.n {
		if err := d.event(); err != nil {
			return err
		}
	}
	return nil
}

// event reads one event into the next slot of the batch. It counts an unreadable event and steps over it, if
// it can find the event's end.
func (d *decoder) event() error {
	start := d.rest
	n := len(d.into.Events)
	d.into.Events = extend(d.into.Events)
	e := &d.into.Events[n]
	r := reading{walker: d.walker, e: e, old: leftover{e.LoRA, e.SpecKind, e.Extra}, loraID: -1}
	blank(e)
	tag, err := r.event()
	if err == nil && tag != tagUnknown {
		d.walker = r.walker
		return nil
	}
	d.into.Events = d.into.Events[:n]
	d.rest = start
	if err := d.skip(); err != nil {
		return err
	}
	d.count(tag)
	return nil
}

// blank clears an event but for the room in its slices.
func blank(e *kv.Event) {
	e.Kind = 0
	e.Tier = kv.GPU
	e.Group = kv.NoGroup
	e.BlockSize = 0
	e.Window = 0
	e.Parent, e.HasParent = 0, false
	e.Hashes = e.Hashes[:0]
	e.Tokens = e.Tokens[:0]
	e.Extra = nil
	e.LoRA = ""
	e.SpecKind = ""
	e.Salt = ""
	e.Ahead = 0
	e.Bare = false
	e.Local = false
}

// extend makes a slice one longer and keeps what the new element held before, for reuse.
func extend(s []kv.Event) []kv.Event {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	return append(s, kv.Event{})
}

func (d *decoder) count(t tag) {
	switch t {
	case tagUnknown:
		d.stats.Unknown++
		return
	case tagRemoved, tagCleared:
		d.stats.Lost++
	}
	d.stats.Malformed++
}
