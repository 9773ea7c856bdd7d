package kvevents

import (
	"encoding/binary"
	"math"

	"github.com/tandem-router/tandem/internal/kv"
)

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

// fillHashes reads hashes until dst is full.
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

// hashOrNil reads a block hash in any form; bytes are reduced to their last 8, as vLLM itself does for its
// integer form.
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

// token reads one id of any width. Negative ones, which some engines use as placeholders, wrap round to the
// top of the range.
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

// lookahead reads the token ids behind each block that the block's hash covers, and returns how many the
// longest list has. The ids themselves stand in the next block, too.
func (r *reading) lookahead() (most int, err error) {
	if r.null() {
		return 0, nil
	}
	blocks, err := r.count()
	for i := uint64(0); i < blocks && err == nil; i++ {
		var ids uint64
		if ids, err = r.count(); err == nil {
			most = max(most, int(min(ids, math.MaxInt32)))
			err = r.skipN(ids)
		}
	}
	return most, err
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

// locality reads whether the memory is of this engine alone. It may be missing for memory that others read.
func (r *reading) locality() error {
	s, ok := r.short()
	if !ok {
		return r.skip()
	}
	r.e.Local = string(s) == "LOCAL"
	return nil
}

// text reads a string or nil. The string that the slot held before is kept if it is the same, which spares an
// allocation.
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
