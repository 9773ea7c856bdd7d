package kvevents

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/tandem-router/tandem/internal/kv"
)

// raw is encoded msgpack. pack copies raw values unchanged.
type raw []byte

// obj is a map with ordered keys: key, value, key, value, and so on.
type obj []any

// pack writes msgpack in the simplest way, for shapes that Encode never writes.
func pack(v any) []byte { return appendPacked(nil, v) }

func appendPacked(b []byte, v any) []byte {
	switch v := v.(type) {
	case raw:
		return append(b, v...)
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, e := range v {
			b = appendPacked(b, e)
		}
		return b
	case obj:
		b = msgp.AppendMapHeader(b, uint32(len(v)/2))
		for _, e := range v {
			b = appendPacked(b, e)
		}
		return b
	case nil:
		return msgp.AppendNil(b)
	case int:
		return msgp.AppendInt64(b, int64(v))
	case uint64:
		return msgp.AppendUint64(b, v)
	case float64:
		return msgp.AppendFloat64(b, v)
	case float32:
		return msgp.AppendFloat32(b, v)
	case bool:
		return msgp.AppendBool(b, v)
	case string:
		return msgp.AppendString(b, v)
	case []byte:
		return msgp.AppendBytes(b, v)
	}
	panic(reflect.TypeOf(v))
}

func batch(events ...any) []byte { return pack([]any{1.5, events, 0}) }

// storedWith returns a stored event in array form, with extra keys and an adapter.
func storedWith(parent, lora any, hashes int, extra any) []any {
	hs, tokens := []any{}, []any{}
	for i := range hashes {
		hs, tokens = append(hs, i+1), append(tokens, i)
	}
	return []any{"BlockStored", hs, parent, tokens, 1, nil, "GPU", lora, extra}
}

// ahead returns a stored event of two blocks with these lookahead_token_ids, as vLLM 0.33 writes the event.
func ahead(lookahead any) obj {
	return obj{
		"type", "BlockStored", "block_hashes",
		[]any{7, 8},
		"parent_block_hash", nil, "token_ids",
		[]any{1, 2},
		"block_size", 1, "session_id", "s", "lookahead_token_ids", lookahead, "later",
		[]any{1},
	}
}

func TestDecodeShapes(t *testing.T) {
	removed := func(h kv.EngineHash) kv.Event {
		return kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{h}, Group: kv.NoGroup}
	}
	hashOf := func(v any) []byte { return batch([]any{"BlockRemoved", []any{v}, "GPU"}) }
	for _, tt := range []struct {
		name    string
		payload []byte
		want    []kv.Event
		stats   DecodeStats
	}{
		{"nothing", batch(), nil, DecodeStats{}},
		{"hash as uint64", hashOf(uint64(1 << 63)), []kv.Event{removed(1 << 63)}, DecodeStats{}},
		{"hash as negative int64", hashOf(-2), []kv.Event{removed(math.MaxUint64 - 1)}, DecodeStats{}},
		{
			"hash as 32 bytes", hashOf(append(make([]byte, 24), 1, 2, 3, 4, 5, 6, 7, 8)),
			[]kv.Event{removed(0x0102030405060708)},
			DecodeStats{},
		},
		{"hash as string", hashOf("xxabcdefgh"), []kv.Event{removed(0x6162636465666768)}, DecodeStats{}},
		{"hash as three bytes", hashOf([]byte{1, 2, 3}), []kv.Event{removed(0x010203)}, DecodeStats{}},
		{
			"removal without medium, v0.9", batch([]any{"BlockRemoved", []any{7}}),
			[]kv.Event{removed(7)},
			DecodeStats{},
		},
		{
			"removal from a shared store with group and more",
			batch([]any{"BlockRemoved", []any{7}, "cpu", 2, "later", []any{obj{1, 2}}}),
			[]kv.Event{{Kind: kv.Removed, Hashes: []kv.EngineHash{7}, Tier: kv.Shared, Group: 2}},
			DecodeStats{},
		},
		{
			"store of v0.9", batch([]any{"BlockStored", []any{7}, 6, []any{1, 300, 70000}, 3, nil}),
			[]kv.Event{{
				Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Parent: 6, HasParent: true,
				Tokens: []kv.Token{1, 300, 70000}, BlockSize: 3, Group: kv.NoGroup, Bare: true,
			}},
			DecodeStats{},
		},
		{
			"numbered adapter must not pass for the base model",
			batch([]any{"BlockStored", []any{7}, nil, []any{1}, 1, 4}),
			[]kv.Event{{
				Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Tokens: []kv.Token{1}, BlockSize: 1, LoRA: "lora_id:4",
				Group: kv.NoGroup, Bare: true,
			}},
			DecodeStats{},
		},
		{
			"hashes that look ahead", batch(ahead([]any{[]any{3, 70000}, []any{}})),
			[]kv.Event{{
				Kind: kv.Stored, Hashes: []kv.EngineHash{7, 8}, Tokens: []kv.Token{1, 2}, BlockSize: 1, Group: kv.NoGroup,
				Bare: true, Ahead: 2,
			}},
			DecodeStats{},
		},
		{
			"hashes that do not look ahead", batch(ahead(nil)),
			[]kv.Event{{
				Kind: kv.Stored, Hashes: []kv.EngineHash{7, 8}, Tokens: []kv.Token{1, 2}, BlockSize: 1, Group: kv.NoGroup,
				Bare: true,
			}},
			DecodeStats{},
		},
		{"lookahead that is no list of lists", batch(ahead([]any{3})), nil, DecodeStats{Malformed: 1}},
		{
			"placeholder of an offload tier", batch(obj{
				"type", "BlockStored", "block_hashes",
				[]any{7},
				"parent_block_hash", nil, "token_ids",
				[]any{},
				"block_size", 0, "medium", "STORAGE", "ownership", "kvcr",
			}),
			[]kv.Event{{Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Tier: kv.Disk, Group: kv.NoGroup, Bare: true}},
			DecodeStats{},
		},
		{
			"masked window: tokens without hashes", batch(obj{
				"type", "BlockStored", "block_hashes",
				[]any{},
				"token_ids",
				[]any{1, 2},
				"block_size", 1, "group_idx", 1,
				"kv_cache_spec_kind", "sliding_window",
			}),
			[]kv.Event{{
				Kind: kv.Stored, Tokens: []kv.Token{1, 2}, BlockSize: 1, Group: 1, SpecKind: "sliding_window", Bare: true,
			}},
			DecodeStats{},
		},
		{
			"tag last, keys unknown and no strings", batch(obj{
				3, 4, "block_hashes", []any{7}, "locality", obj{"deep", []any{nil, true, 1.5}}, "type", "BlockRemoved",
			}),
			[]kv.Event{removed(7)},
			DecodeStats{},
		},
		{
			"cleared in both forms", batch([]any{"AllBlocksCleared"}, obj{"type", "AllBlocksCleared"}),
			[]kv.Event{{Kind: kv.Cleared, Group: kv.NoGroup}, {Kind: kv.Cleared, Group: kv.NoGroup}},
			DecodeStats{},
		},
		{
			"unknown tags between", batch([]any{"BlockInactive", obj{1, 2}}, []any{"BlockRemoved", []any{7}},
				obj{"type", "Other", "block_hashes", "?"}, 5, []any{}, nil),
			[]kv.Event{removed(7)},
			DecodeStats{Unknown: 5},
		},
		{
			"bad store, good removal",
			batch([]any{"BlockStored", []any{7}, nil, "tokens", 1}, []any{"BlockRemoved", []any{7}}),
			[]kv.Event{removed(7)},
			DecodeStats{Malformed: 1},
		},
		{
			"token above 32 bits", batch([]any{"BlockStored", []any{7}, nil, []any{uint64(1) << 32}, 1}), nil,
			DecodeStats{Malformed: 1},
		},
		{
			"bad removals are told apart", batch([]any{"BlockRemoved", 7},
				obj{"block_hashes", 7, "type", "BlockRemoved"}, []any{"BlockRemoved"},
				[]any{"BlockRemoved", []any{nil}}), nil,
			DecodeStats{Malformed: 4, Lost: 4},
		},
		{
			"batch as a map",
			pack(obj{"events", []any{[]any{"AllBlocksCleared"}}, "new", 1, "data_parallel_rank", 0, "ts", 1.5}),
			[]kv.Event{{Kind: kv.Cleared, Group: kv.NoGroup}},
			DecodeStats{},
		},
		{"batch with more fields", pack([]any{1.5, []any{}, 0, "more", obj{}}), nil, DecodeStats{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := dirty()
			stats, err := Decode(tt.payload, got)
			if err != nil || stats != tt.stats {
				t.Fatalf("got stats %+v, %v; want %+v", stats, err, tt.stats)
			}
			diffBatch(t, tt.name, got, &kv.Batch{At: time.UnixMilli(1500), Events: tt.want})
		})
	}
}

// dirty returns a batch with the data of an earlier decode.
func dirty() *kv.Batch {
	var b kv.Batch
	e := storedWith(9, "adapter", 3, []any{[]any{"adapter", "x"}, []any{"adapter", []any{"image", -3}}})
	if _, err := Decode(pack([]any{9.5, []any{e, e, e}, 7}), &b); err != nil || len(b.Events) != 3 ||
		b.Rank != 7 {
		panic("dirty batch")
	}
	for i := range b.Events {
		b.Events[i].Local = true
	}
	return &b
}

func TestDecodeExtraKeys(t *testing.T) {
	image := binary.AppendVarint(appendExtra(nil, extraMultimodal, []byte("image")), -3)
	for _, tt := range []struct {
		name  string
		event []any
		lora  string
		salt  string
		extra [][]byte
	}{
		{"none", storedWith(nil, nil, 2, nil), "", "", nil},
		{"nils", storedWith(nil, nil, 2, []any{nil, nil}), "", "", nil},
		{"empty lists", storedWith(nil, nil, 2, []any{[]any{}, []any{}}), "", "", nil},
		{"salt", storedWith(nil, nil, 2, []any{[]any{"s"}, nil}), "", "s", nil},
		{"salt like an adapter, no adapter", storedWith(nil, nil, 1, []any{[]any{"adapter"}}), "", "adapter", nil},
		{"adapter", storedWith(nil, "a", 2, []any{[]any{"a"}, []any{"a"}}), "a", "", nil},
		{"adapter and salt", storedWith(nil, "a", 2, []any{[]any{"a", "s"}, []any{"a"}}), "a", "s", nil},
		{"adapter and salt of one name", storedWith(nil, "a", 1, []any{[]any{"a", "a"}}), "a", "a", nil},
		{"no salt behind a parent", storedWith(5, nil, 1, []any{[]any{"s"}}), "", "", [][]byte{{'s', 1, 's'}}},
		{"image", storedWith(nil, nil, 2, []any{nil, []any{[]any{"image", -3}}}), "", "", [][]byte{nil, image}},
		{
			"adapter, image, salt", storedWith(nil, "a", 1, []any{[]any{"a", []any{"image", -3}, "s"}}), "a", "s",
			[][]byte{image},
		},
		{
			"two bare strings: the last is the salt", storedWith(nil, nil, 1, []any{[]any{"image", "s"}}), "", "s",
			[][]byte{append([]byte{'s', 5}, "image"...)},
		},
		{"embeddings", storedWith(nil, nil, 1, []any{[]any{[]byte{1, 2}}}), "", "", [][]byte{{'b', 2, 1, 2}}},
		{
			"something else", storedWith(nil, nil, 1, []any{[]any{obj{"k", 1}}}), "", "",
			[][]byte{{'r', 4, 0x81, 0xa1, 'k', 1}},
		},
		{"element without a list", storedWith(nil, nil, 1, []any{"s"}), "", "s", nil},
		{"more keys than blocks", storedWith(nil, nil, 1, []any{nil, []any{"x"}}), "", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := dirty()
			if stats, err := Decode(batch(tt.event), b); err != nil || stats != (DecodeStats{}) {
				t.Fatalf("got stats %+v, %v; want no faults", stats, err)
			}
			e := b.Events[0]
			if e.LoRA != tt.lora || e.Salt != tt.salt || !reflect.DeepEqual(e.Extra, tt.extra) {
				t.Errorf("got lora %q salt %q extra %q, want %q, %q, %q",
					e.LoRA, e.Salt, e.Extra, tt.lora, tt.salt, tt.extra)
			}
		})
	}
}

// TestDecodeHandEncoded decodes two payloads that a person encoded by hand from the schema.
func TestDecodeHandEncoded(t *testing.T) {
	for form, s := range map[string]string{
		"map": "93cb3ff8000000000000918aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf84" +
			"b146b151d55111b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f" +
			"636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa6578747261" +
			"5f6b65797391c0a967726f75705f6964780000",
		"array": "93cb3ff80000000000009198ab426c6f636b53746f72656491cf84b146b151d55111c0940102030404c0a3475055c000",
	} {
		payload, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		want := kv.Event{
			Kind: kv.Stored, Hashes: []kv.EngineHash{0x84b146b151d55111}, Tokens: []kv.Token{1, 2, 3, 4}, BlockSize: 4,
			Group: kv.NoGroup,
		}
		want.Bare = form == "array"
		if form == "map" {
			want.Group = 0
		}
		var b kv.Batch
		if stats, err := Decode(payload, &b); err != nil || stats != (DecodeStats{}) {
			t.Fatalf("%s: got stats %+v, %v; want no faults", form, stats, err)
		}
		diffBatch(t, form, &b, &kv.Batch{At: time.UnixMilli(1500), Events: []kv.Event{want}})
	}
}

func TestDecodeErrors(t *testing.T) {
	whole := batch(storedWith(nil, "a", 3, []any{[]any{"a", "s"}}), []any{"BlockRemoved", []any{7}})
	var b kv.Batch
	for i := range whole { // a payload that ends too early is an error, at every place
		if _, err := Decode(whole[:i], &b); err == nil {
			t.Errorf("payload cut at %d of %d: got no error, want one", i, len(whole))
		}
	}
	for name, payload := range map[string][]byte{
		"text":                  []byte("nonsense"),
		"one element":           pack([]any{1.5}),
		"events no list":        pack([]any{1.5, "x", 0}),
		"reserved byte":         pack([]any{1.5, []any{raw{0xc1}}, 0}),
		"array of four billion": {0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"map of four billion":   {0x93, 0xc0, 0xdf, 0xff, 0xff, 0xff, 0xff},
		"string of four GB":     {0x93, 0xc0, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xff},
	} {
		if _, err := Decode(payload, &b); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func TestDecodeTimeAndRank(t *testing.T) {
	for _, tt := range []struct {
		outer any
		at    time.Time
		rank  int
	}{
		{[]any{1795241155.6760075, []any{}, 3}, time.Unix(1795241155, 676007509), 3},
		{[]any{12, []any{}, nil}, time.Unix(12, 0), -1},
		{[]any{float32(0.5), []any{}}, time.UnixMilli(500), -1},
		{[]any{math.NaN(), []any{}}, time.Time{}, -1},
		{[]any{math.Inf(1), []any{}, "x"}, time.Time{}, -1},
		{[]any{nil, []any{}, -1}, time.Time{}, -1},
	} {
		var b kv.Batch
		if _, err := Decode(pack(tt.outer), &b); err != nil {
			t.Fatal(err)
		}
		if !b.At.Equal(tt.at) || b.Rank != tt.rank {
			t.Errorf("%v: got %v rank %d, want %v, %d", tt.outer, b.At.UnixNano(), b.Rank, tt.at.UnixNano(), tt.rank)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	var b kv.Batch
	for _, c := range live(t)[:40] {
		payload := c.Frames[2]
		if bytes.Contains(payload, []byte("tenant")) {
			continue // a salt needs a new string
		}
		if n := testing.AllocsPerRun(3, func() { Decode(payload, &b) }); n > 0 {
			t.Errorf("%s, %s: got %v allocations, want none", c.File, c.Step, n)
		}
	}
}

// FuzzDecode finds panics, too much memory for a short payload, and results that depend on the former content
// of the batch.
func FuzzDecode(f *testing.F) {
	for _, c := range live(f) {
		f.Add(c.Frames[2])
	}
	f.Add(batch(storedWith(nil, "a", 2, []any{[]any{"a", []any{"image", -3}, "s", []byte{1}, obj{1, 2}}})))
	f.Add(pack(obj{"events", []any{}, "ts", 1}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var fresh kv.Batch
		stats, err := Decode(payload, &fresh)
		if size := footprint(&fresh); size > 128*len(payload)+4096 {
			t.Errorf("got %d bytes of memory for %d bytes of payload, want at most 128 times as many + 4096",
				size, len(payload))
		}
		used := dirty()
		again, errAgain := Decode(payload, used)
		if stats != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("got %+v, %v for a new batch, but %+v, %v for a used batch", stats, err, again, errAgain)
		}
		diffBatch(t, "reused", used, &fresh)
	})
}

// footprint returns the memory that a batch uses.
func footprint(b *kv.Batch) int {
	const eventSize = 200
	size := eventSize * cap(b.Events)
	for _, e := range b.Events[:cap(b.Events)] {
		size += 8*cap(e.Hashes) + 4*cap(e.Tokens) + 24*cap(e.Extra) + len(e.LoRA) + len(e.Salt) + len(e.SpecKind)
		for _, x := range e.Extra {
			size += cap(x)
		}
	}
	return size
}

// FuzzEncodeDecode encodes a decoded batch and decodes it again. The content must be the same in each form of
// the encoding.
func FuzzEncodeDecode(f *testing.F) {
	for _, c := range live(f) {
		f.Add(c.Frames[2], false, false)
	}
	f.Add(batch(storedWith(nil, "a", 2, []any{[]any{"a", []any{"image", -3}, "s", []byte{1}, obj{1, 2}}})), true,
		true)
	f.Fuzz(func(t *testing.T, payload []byte, array, byteHashes bool) {
		var b, again kv.Batch
		if _, err := Decode(payload, &b); err != nil {
			t.Skip()
		}
		form := Map
		if array {
			form = Array
			for i := range b.Events { // remove fields that version 0.20 lacks
				b.Events[i].SpecKind, b.Events[i].Window = "", 0
			}
		}
		canonical(&b)
		out := Encode(nil, &EncodeBatch{At: b.At, Rank: b.Rank, Events: b.Events, ByteHashes: byteHashes}, form)
		stats, err := Decode(out, &again)
		if err != nil || stats != (DecodeStats{}) {
			t.Fatalf("got %+v, %v for our own bytes; want no faults", stats, err)
		}
		diffBatch(t, "round trip", &again, &b)
	})
}

// canonical removes fields that have no meaning for the kind of an event, such as the tokens of a removal.
func canonical(b *kv.Batch) {
	b.Rank = max(b.Rank, 0)
	for i, e := range b.Events {
		switch e.Kind {
		case kv.Removed:
			b.Events[i] = kv.Event{Kind: kv.Removed, Hashes: e.Hashes, Tier: e.Tier, Group: e.Group}
		case kv.Cleared:
			b.Events[i] = kv.Event{Kind: kv.Cleared, Group: kv.NoGroup}
		case kv.Stored:
			if !slices.ContainsFunc(e.Extra, func(x []byte) bool { return len(x) > 0 }) {
				b.Events[i].Extra = nil
			}
		}
	}
}
