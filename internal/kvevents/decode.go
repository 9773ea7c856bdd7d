package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"tandem/internal/kv"
)

// DecodeStats counts what Decode met beside plain events.
type DecodeStats struct {
	Unknown   int // events with a tag we do not know, skipped
	Malformed int // events of a known tag that could not be read, skipped
	Lost      int // those of Malformed that said blocks are gone: what was applied before may be too much now
}

// Errors of an event, or a batch, that is sound msgpack but not of the shape we know.
var (
	errShape = errors.New("not the shape of a KV event")
	errBatch = errors.New("not the shape of a KV event batch")
)

// Decode reads one msgpack batch into into, whose slices it reuses; Seq is left alone, and Rank is -1 if the batch does not name one.
//
// It reads arrays and maps at both levels, hashes as unsigned, signed or bytes, and skips trailing elements, keys and tags that it does not know. An error means
// that the payload is not msgpack or no batch; events before the fault are in into then. Memory is bounded by a small multiple of the payload. Strings are
// copied out of payload; nothing refers to it afterwards.
func Decode(payload []byte, into *kv.Batch) (DecodeStats, error) {
	d := decoder{walker: walker{rest: payload}, into: into}
	into.At, into.Rank, into.Events = time.Time{}, -1, into.Events[:0]
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

func (d *decoder) skipN(n uint64) error {
	for range n {
		if err := d.skip(); err != nil {
			return err
		}
	}
	return nil
}

// at reads the engine's time stamp, float Unix seconds. One that no calendar holds reads as the zero time.
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

// event reads one event into the next slot of the batch. One that cannot be read is counted and stepped over, if its end can be found.
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
	e.Kind, e.Tier, e.Group, e.BlockSize, e.Window = 0, kv.GPU, kv.NoGroup, 0, 0
	e.Parent, e.HasParent = 0, false
	e.Hashes, e.Tokens, e.Extra = e.Hashes[:0], e.Tokens[:0], nil
	e.LoRA, e.SpecKind, e.Salt, e.Bare = "", "", "", false
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

// tag is the kind of an event as its first element or its "type" names it.
type tag uint8

const (
	tagUnknown tag = iota
	tagStored
	tagRemoved
	tagCleared
)

func tagOf(v value) tag {
	if v.kind != kindStr {
		return tagUnknown
	}
	return tagNamed(v.raw)
}

func tagNamed(name []byte) tag {
	switch string(name) {
	case "BlockStored":
		return tagStored
	case "BlockRemoved":
		return tagRemoved
	case "AllBlocksCleared":
		return tagCleared
	}
	return tagUnknown
}

// field is a field of an event that we read.
type field uint8

const (
	fieldNone field = iota
	fieldType
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldExtra
	fieldGroup
	fieldSpec
	fieldWindow
)

// layouts are the fields at each position of an array-form event; see vLLM's distributed/kv_events.py.
var layouts = [...][]field{
	tagStored: {
		fieldNone, fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRAName, fieldExtra,
		fieldGroup, fieldSpec, fieldWindow,
	},
	tagRemoved: {fieldNone, fieldHashes, fieldMedium, fieldGroup},
	tagCleared: nil,
}

func fieldNamed(name []byte) field {
	switch string(name) {
	case "type":
		return fieldType
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoRAID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoRAName
	case "extra_keys":
		return fieldExtra
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpec
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	}
	return fieldNone
}

// reading is one event being read.
type reading struct {
	walker
	e         *kv.Event
	old       leftover
	hasHashes bool
	hasExtra  bool   // extra_keys is there, and not nil
	loraID    int64  // -1: none
	extra     []byte // extra_keys as sent; read last, since it means nothing without lora_name and parent
}

// leftover is what the slot of an event held before and may be used again. It must not be written to before it is: the event may not have any.
type leftover struct {
	LoRA     string
	SpecKind string
	Extra    [][]byte
}

// event reads one event. The tag is right also beside an error, so that the caller can say what was lost.
func (r *reading) event() (tag, error) {
	t, err := r.fields()
	if err != nil || t == tagUnknown {
		return t, err
	}
	return t, r.finish(t)
}

func (r *reading) fields() (tag, error) {
	if n, ok := r.pairs(); ok {
		return r.object(n)
	}
	if n, ok := r.few(); ok {
		return r.array(n)
	}
	v, err := r.next()
	switch {
	case err != nil:
		return tagUnknown, err
	case v.kind == kindArray:
		return r.array(v.n)
	case v.kind == kindMap:
		return r.object(v.n)
	}
	return tagUnknown, nil
}

func (r *reading) array(n uint64) (tag, error) {
	if n == 0 {
		return tagUnknown, nil
	}
	t, err := r.tag()
	if err != nil || t == tagUnknown {
		return tagUnknown, err
	}
	layout := layouts[t]
	for i := uint64(1); i < n; i++ {
		f := fieldNone
		if i < uint64(len(layout)) {
			f = layout[i]
		}
		if err := r.field(f); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (r *reading) object(n uint64) (tag, error) {
	t := tagUnknown
	body := r.walker
	for range n {
		name, err := r.name()
		if err != nil {
			return t, err
		}
		f := fieldNamed(name)
		if f == fieldType {
			if t, err = r.tag(); err != nil || t == tagUnknown {
				return tagUnknown, err
			}
			continue
		}
		if err := r.field(f); err != nil {
			return typeIn(body, n), err
		}
	}
	return t, nil
}

func (r *reading) tag() (tag, error) {
	if s, ok := r.short(); ok {
		return tagNamed(s), nil
	}
	v, err := r.next()
	return tagOf(v), err
}

// typeIn looks for "type" in a map whose head has been read, wherever it stands.
func typeIn(w walker, n uint64) tag {
	for range n {
		name, err := w.name()
		if err != nil {
			return tagUnknown
		}
		if fieldNamed(name) == fieldType {
			v, _ := w.next()
			return tagOf(v)
		}
		if w.skip() != nil {
			return tagUnknown
		}
	}
	return tagUnknown
}

func (r *reading) field(f field) (err error) {
	switch f {
	case fieldHashes:
		return r.hashes()
	case fieldParent:
		r.e.Parent, r.e.HasParent, err = r.hashOrNil()
	case fieldTokens:
		return r.tokens()
	case fieldBlockSize:
		r.e.BlockSize, err = r.numberOr(0)
	case fieldLoRAID:
		return r.adapterID()
	case fieldMedium:
		return r.medium()
	case fieldLoRAName:
		r.e.LoRA, err = r.text(r.old.LoRA)
	case fieldExtra:
		r.hasExtra = !r.null()
		if r.hasExtra && !r.plain() {
			r.extra, err = r.span()
		}
	case fieldGroup:
		r.e.Group, err = r.numberOr(kv.NoGroup)
	case fieldSpec:
		r.e.SpecKind, err = r.text(r.old.SpecKind)
	case fieldWindow:
		r.e.Window, err = r.numberOr(0)
	default:
		return r.skip()
	}
	return err
}

// plain takes extra keys that say nothing, as those of text do: a nil for each block.
func (r *reading) plain() bool {
	w := r.walker
	n, err := w.count()
	if err != nil || !allNil(w.rest[:n]) { // of which there are as many: an element has a byte or more
		return false
	}
	r.rest, r.extra = w.rest[n:], nil
	return true
}

func allNil(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != 0xc0c0c0c0_c0c0c0c0 {
			return false
		}
	}
	for _, c := range b {
		if c != 0xc0 {
			return false
		}
	}
	return true
}

// finish gives the event its kind and reads the extra keys.
func (r *reading) finish(t tag) error {
	r.e.Kind = [...]kv.EventKind{tagStored: kv.Stored, tagRemoved: kv.Removed, tagCleared: kv.Cleared}[t]
	if t == tagCleared {
		return nil
	}
	if !r.hasHashes {
		return errShape
	}
	r.e.Bare = t == tagStored && !r.hasExtra
	if r.e.LoRA == "" && r.loraID >= 0 { // vLLM before 0.14 gives adapters only a number; it must not pass for the base model
		r.e.LoRA = fmt.Sprintf("lora_id:%d", r.loraID)
	}
	if len(r.extra) == 0 {
		return nil
	}
	return readExtra(r.extra, r.e, r.old.Extra)
}

func (r *reading) hashes() error {
	n, err := r.count()
	if err != nil {
		return err
	}
	r.hasHashes = true
	if uint64(cap(r.e.Hashes)) < n {
		r.e.Hashes = make([]kv.EngineHash, n)
	}
	r.e.Hashes = r.e.Hashes[:n]
	return r.fillHashes(r.e.Hashes)
}

// fillHashes reads as many hashes as dst has room for.
func (r *reading) fillHashes(dst []kv.EngineHash) error {
	b := r.rest
	for i := range dst {
		if len(b) >= 9 && b[0] == 0xcf {
			dst[i] = kv.EngineHash(binary.BigEndian.Uint64(b[1:]))
			b = b[9:]
			continue
		}
		r.rest = b
		h, ok, err := r.hashOrNil()
		if err != nil {
			return err
		}
		if !ok {
			return errShape
		}
		dst[i], b = h, r.rest
	}
	r.rest = b
	return nil
}

// hashOrNil reads a block hash in any form; bytes are reduced to their last 8, as vLLM itself does for its integer form.
func (r *reading) hashOrNil() (h kv.EngineHash, ok bool, err error) {
	if n, ok := r.long(); ok {
		return kv.EngineHash(n), true, nil
	}
	if r.null() {
		return 0, false, nil
	}
	v, err := r.next()
	if err != nil {
		return 0, false, err
	}
	switch v.kind {
	case kindUint, kindInt:
		return kv.EngineHash(v.n), true, nil
	case kindBin, kindStr:
		if len(v.raw) > 0 {
			return kv.HashOf(v.raw), true, nil
		}
	}
	return 0, false, errShape
}

func (r *reading) tokens() error {
	r.e.Tokens = r.e.Tokens[:0]
	if r.null() {
		return nil
	}
	n, err := r.count()
	if err != nil {
		return err
	}
	if uint64(cap(r.e.Tokens)) < n {
		r.e.Tokens = make([]kv.Token, n)
	}
	r.e.Tokens = r.e.Tokens[:n]
	return r.fill(r.e.Tokens)
}

// token reads one id of any width. Negative ones, which some engines use as placeholders, wrap round to the top of the range.
func (r *reading) token() (kv.Token, error) {
	v, err := r.next()
	switch {
	case err != nil:
		return 0, err
	case v.kind == kindUint && v.n <= math.MaxUint32, v.kind == kindInt && int64(v.n) >= math.MinInt32:
		return kv.Token(v.n), nil
	}
	return 0, errShape
}

// numberOr reads a small number that is not negative; nil reads as none.
func (r *reading) numberOr(none int) (int, error) {
	if n, ok := r.small(); ok {
		return n, nil
	}
	v, err := r.next()
	switch {
	case err != nil:
		return none, err
	case v.kind == kindNil:
		return none, nil
	case v.kind == kindUint && v.n <= math.MaxInt32:
		return int(v.n), nil
	}
	return none, errShape
}

// adapterID reads lora_id, which is deprecated: another type than a number is not our business.
func (r *reading) adapterID() error {
	if r.null() {
		return nil
	}
	span, err := r.span()
	if err != nil {
		return err
	}
	if v, _ := (&walker{rest: span}).next(); v.kind == kindUint && v.n <= math.MaxInt32 {
		r.loraID = int64(v.n)
	}
	return nil
}

func (r *reading) medium() error {
	if s, ok := r.short(); ok {
		r.e.Tier = kv.ParseTier(string(s))
		return nil
	}
	v, err := r.next()
	switch {
	case err != nil:
		return err
	case v.kind == kindNil:
		r.e.Tier = kv.GPU
		return nil
	case v.kind == kindStr:
		r.e.Tier = kv.ParseTier(string(v.raw))
		return nil
	}
	return errShape
}

// text reads a string or nil. The string that the slot held before is kept if it is the same, which spares an allocation.
func (r *reading) text(before string) (string, error) {
	if r.null() {
		return "", nil
	}
	if s, ok := r.short(); ok {
		return keep(before, s), nil
	}
	v, err := r.next()
	switch {
	case err != nil:
		return "", err
	case v.kind == kindNil:
		return "", nil
	case v.kind != kindStr:
		return "", errShape
	}
	return keep(before, v.raw), nil
}

func keep(before string, now []byte) string {
	switch string(now) {
	case before:
		return before
	case "full_attention":
		return "full_attention"
	}
	return string(now)
}
