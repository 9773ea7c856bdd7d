package kvevents

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tandem-router/tandem/internal/kv"
)

// The errors of [DecodeHTTP]. They quote nothing of the event.
var (
	errNotJSON   = errors.New("could not be read")
	errNoBlock   = errors.New("names no block")
	errNoTokens  = errors.New("has no tokens, and a block without tokens belongs to no known prompt")
	errEventKind = errors.New("changes the cache in an unknown way")
)

// httpEvent is the data of an event.
type httpEvent struct {
	Event  string          `json:"event"` // the kind, where the event itself has none
	Hash   string          `json:"prefix_hash"`
	Parent string          `json:"parent_hash"`
	Tokens []kv.Token      `json:"token_ids"`
	LoRA   string          `json:"lora_name"`
	Salt   string          `json:"cache_salt"`
	Extra  json.RawMessage `json:"extra_keys"`
}

// DecodeHTTP reads one event of an engine that sends KV events over HTTP, as server-sent events:
//
//	event: cache_created
//	data: {"prefix_hash": "9f3c…", "parent_hash": "04b1…", "token_ids": [1, …], "cache_salt": "s"}
//
// kind and data are the event's fields. The changes replace b.Events. about reports whether the event is
// about the cache; other events change nothing. After an error any block of the engine may be gone.
//
// Each event changes one block: prefix_hash names the block, parent_hash the block before it, token_ids are
// the block's tokens, and extra_keys is what else the content depends on (images, perhaps). cache_evicted and
// cache_reloaded change the engine's own memory, cache_offloaded moves a block to a store below, cache_purged
// removes it everywhere.
//
// Tandem follows no such stream: vLLM publishes over ZMQ. The decoder is there for an engine that needs it.
func DecodeHTTP(kind string, data []byte, b *kv.Batch) (about bool, err error) {
	b.Events = b.Events[:0]
	named := kind != "" && kind != "message" // the kind of an event that has no kind
	if named && !strings.HasPrefix(kind, "cache_") {
		return false, nil
	}
	var e httpEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return true, errNotJSON // an error of package json may quote the event
	}
	if !named {
		kind = e.Event
	}
	if !strings.HasPrefix(kind, "cache_") {
		return false, nil
	}
	hash, err := hashOf(e.Hash)
	if err != nil {
		return true, err
	}
	return true, e.change(b, kind, hash)
}

// change appends what the event says.
func (c *httpEvent) change(b *kv.Batch, kind string, hash kv.EngineHash) error {
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
		return errEventKind
	}
	return nil
}

// content says what a created block is made of.
func (c *httpEvent) content(e *kv.Event) (err error) {
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
		e.Extra = [][]byte{appendExtra(nil, extraRaw, extra)} // known, and never equal to the extra of text alone
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
		return 0, errNoBlock
	}
	return kv.HashOf(digest), nil
}
