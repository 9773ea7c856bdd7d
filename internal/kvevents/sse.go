package kvevents

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/kv"
)

// Events of engines that send them over HTTP, as server-sent events, one change of one block each:
//
//	id: 7
//	event: cache_created
//	data: {"prefix_hash": "9f3c…", "parent_hash": "04b1…", "token_ids": [1, …], "cache_salt": "s"}
//
// prefix_hash names the block that ends the prefix, parent_hash the one before it (none: it is the first),
// and token_ids are the tokens of the block; extra_keys is what else its content depends on, images perhaps.
// The other kinds name a block alone: cache_evicted and cache_reloaded are of the engine's own memory,
// cache_offloaded moves it to a store below, and cache_purged ends it everywhere. A kind cache_… that is none
// of these may have taken anything away. Ids count by one, where there are any. Lines end with \n or \r\n.

// maxSSE is how long a line, and the data of an event, may be.
const maxSSE = 1 << 20

var (
	errSSELong   = errors.New("a server-sent event is too long")
	errIDs       = errors.New("server-sent events have no ids that count")
	errNoTokens  = errors.New("tells no tokens, without which nobody knows what its blocks are")
	errNotJSON   = errors.New("could not be read")
	errNoContent = errors.New("names no block")
	errKind      = errors.New("changes the cache in a way that is not known")
)

// sseEvent is one event as it came.
type sseEvent struct {
	id   string // "" none
	kind string
	data []byte
}

// sseReader cuts a stream into events.
type sseReader struct{ lines *bufio.Reader }

func newSSEReader(r io.Reader) *sseReader { return &sseReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next event that has data. What the end of the stream cuts off is none.
func (r *sseReader) next() (e sseEvent, err error) {
	for {
		line, err := r.line()
		switch field, value, _ := strings.Cut(line, ":"); {
		case err != nil:
			return sseEvent{}, err
		case line == "" && len(e.data) > 0:
			e.data = e.data[:len(e.data)-1]
			return e, nil
		case line == "":
			e = sseEvent{}
		case field == "id":
			e.id = strings.TrimPrefix(value, " ")
		case field == "event":
			e.kind = strings.TrimPrefix(value, " ")
		case field == "data":
			e.data = append(append(e.data, strings.TrimPrefix(value, " ")...), '\n')
		}
		if len(e.data) > maxSSE {
			return sseEvent{}, errSSELong
		}
	}
}

// line returns the next line without its end.
func (r *sseReader) line() (string, error) {
	var long []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		long = append(long, part...)
		switch {
		case len(long) > maxSSE:
			return "", errSSELong
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return "", err
		default:
			return string(bytes.TrimRight(long, "\r\n")), nil
		}
	}
}

// number is the event's own, false where it has none.
func (e *sseEvent) number() (seq uint64, ok bool, err error) {
	if e.id == "" {
		return 0, false, nil
	}
	seq, err = strconv.ParseUint(e.id, 10, 64)
	if err != nil || seq == endOfReplay {
		return 0, false, errIDs
	}
	return seq, true, nil
}

// sseChange is the data of an event.
type sseChange struct {
	Event  string          `json:"event"` // where the event itself has no kind
	Hash   string          `json:"prefix_hash"`
	Parent string          `json:"parent_hash"`
	Tokens []kv.Token      `json:"token_ids"`
	LoRA   string          `json:"lora_name"`
	Salt   string          `json:"cache_salt"`
	Extra  json.RawMessage `json:"extra_keys"`
}

// decode reads the event into b, and reports whether it is about the cache. One that is not changes nothing.
func (e *sseEvent) decode(b *kv.Batch) (change bool, err error) {
	b.Events = b.Events[:0]
	named := e.kind != "" && e.kind != "message" // the kind that an event without one has
	if named && !strings.HasPrefix(e.kind, "cache_") {
		return false, nil
	}
	var c sseChange
	if err := json.Unmarshal(e.data, &c); err != nil {
		return true, errNotJSON // an error of JSON may quote what it read
	}
	kind := e.kind
	if !named {
		kind = c.Event
	}
	if !strings.HasPrefix(kind, "cache_") {
		return false, nil
	}
	hash, err := hashOf(c.Hash)
	if err != nil {
		return true, err
	}
	return true, c.change(b, kind, hash)
}

// change appends what the event says.
func (c *sseChange) change(b *kv.Batch, kind string, hash kv.EngineHash) error {
	event := func(kind kv.EventKind, tier kv.Tier) kv.Event {
		return kv.Event{Kind: kind, Hashes: []kv.EngineHash{hash}, Tier: tier, Group: kv.NoGroup}
	}
	switch kind {
	case "cache_created":
		created := event(kv.Stored, kv.GPU)
		if err := c.content(&created); err != nil {
			return err
		}
		b.Events = append(b.Events, created)
	case "cache_reloaded":
		b.Events = append(b.Events, event(kv.Stored, kv.GPU))
	case "cache_evicted":
		b.Events = append(b.Events, event(kv.Removed, kv.GPU))
	case "cache_offloaded":
		b.Events = append(b.Events, event(kv.Stored, kv.Other), event(kv.Removed, kv.GPU))
	case "cache_purged":
		b.Events = append(b.Events, event(kv.Removed, kv.GPU), event(kv.Removed, kv.Other))
	default:
		return errKind
	}
	return nil
}

// content says what a created block is made of.
func (c *sseChange) content(e *kv.Event) (err error) {
	if len(c.Tokens) == 0 {
		return errNoTokens
	}
	if c.Parent != "" {
		e.HasParent = true
		if e.Parent, err = hashOf(c.Parent); err != nil {
			return err
		}
	}
	e.Tokens, e.BlockSize = c.Tokens, len(c.Tokens)
	e.LoRA = c.LoRA
	if !e.HasParent {
		e.Salt = c.Salt
	}
	if extra := bytes.TrimSpace(c.Extra); len(extra) > 0 && string(extra) != "null" {
		e.Extra = [][]byte{appendExtra(nil, extraRaw, extra)} // known, and never that of a text alone
	}
	return nil
}

// hashOf reads the name of a block: hexadecimal digits, as a digest or as a number has them.
func hashOf(text string) (kv.EngineHash, error) {
	text = strings.TrimPrefix(text, "0x")
	if len(text)%2 == 1 {
		text = "0" + text
	}
	digest, err := hex.DecodeString(text)
	if err != nil || len(digest) == 0 {
		return 0, errNoContent
	}
	return kv.HashOf(digest), nil
}

// describe is why a connection ended.
func describe(err error) string {
	if errors.Is(err, io.EOF) {
		return "the stream has ended"
	}
	return fmt.Sprintf("the stream broke off: %v", err)
}
