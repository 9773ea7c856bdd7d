package kvevents

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
)

// wireInt encodes v in each form of msgpack, including forms that are longer than necessary.
func wireInt(v uint64) map[string]raw {
	forms := map[string]raw{
		"cf": binary.BigEndian.AppendUint64([]byte{0xcf}, v),
		"d3": binary.BigEndian.AppendUint64([]byte{0xd3}, v),
	}
	if v < 1<<7 {
		forms["fixint"], forms["d0"] = raw{byte(v)}, raw{0xd0, byte(v)}
	}
	if v < 1<<8 {
		forms["cc"] = raw{0xcc, byte(v)}
	}
	if v < 1<<15 {
		forms["d1"] = binary.BigEndian.AppendUint16([]byte{0xd1}, uint16(v))
	}
	if v < 1<<16 {
		forms["cd"] = binary.BigEndian.AppendUint16([]byte{0xcd}, uint16(v))
	}
	if v < 1<<31 {
		forms["d2"] = binary.BigEndian.AppendUint32([]byte{0xd2}, uint32(v))
	}
	if v < 1<<32 {
		forms["ce"] = binary.BigEndian.AppendUint32([]byte{0xce}, uint32(v))
	}
	return forms
}

// TestDecodeEveryIntForm decodes token ids, hashes, parents and sizes in all widths, signed and unsigned. One
// of the numbers is at the very end of a payload.
func TestDecodeEveryIntForm(t *testing.T) {
	for _, v := range []uint64{
		0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1,
	} {
		for form, b := range wireInt(v) {
			var got kv.Batch
			payload := pack([]any{
				1.5, []any{[]any{"BlockStored", []any{b, b}, b, []any{b, 7, b}, 1}, []any{"BlockRemoved", []any{b}}},
			})
			if stats, err := Decode(payload, &got); err != nil || stats != (DecodeStats{}) {
				t.Fatalf("%d as %s: got %+v, %v; want no faults", v, form, stats, err)
			}
			h, id := kv.EngineHash(v), kv.Token(v)
			diffBatch(t, form, &got, &kv.Batch{At: time.UnixMilli(1500), Rank: -1, Events: []kv.Event{
				{
					Kind: kv.Stored, Hashes: []kv.EngineHash{h, h}, Parent: h, HasParent: true,
					Tokens: []kv.Token{id, 7, id}, BlockSize: 1, Group: kv.NoGroup, Bare: true,
				},
				{Kind: kv.Removed, Hashes: []kv.EngineHash{h}, Group: kv.NoGroup},
			}})
		}
	}
}

// TestDecodeSignedHashes decodes hashes as signed 64-bit numbers in every width, as SGLang writes them. The
// same bits are the same hash.
func TestDecodeSignedHashes(t *testing.T) {
	for form, b := range map[string]raw{
		"fixint": {0xff}, "d0": {0xd0, 0xff}, "d1": {0xd1, 0xff, 0xff}, "d2": {0xd2, 0xff, 0xff, 0xff, 0xff},
		"d3":        {0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"cf":        {0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"bin":       append(raw{0xc4, 8}, bytes.Repeat([]byte{0xff}, 8)...),
		"bin of 32": append(raw{0xc4, 32}, bytes.Repeat([]byte{0xff}, 32)...),
		"str":       append(raw{0xa8}, bytes.Repeat([]byte{0xff}, 8)...),
	} {
		var got kv.Batch
		if stats, err := Decode(batch([]any{"BlockRemoved", []any{b}}), &got); err != nil ||
			stats != (DecodeStats{}) {
			t.Fatalf("%s: got %+v, %v; want no faults", form, stats, err)
		}
		if h := got.Events[0].Hashes; !slices.Equal(h, []kv.EngineHash{1<<64 - 1}) {
			t.Errorf("%s: got hashes %x, want one with all bits set", form, h)
		}
	}
}

// TestDecodeEveryField decodes the last field of each version, in both forms, and fields that only maps have.
func TestDecodeEveryField(t *testing.T) {
	full := kv.Event{
		Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Parent: 6, HasParent: true, Tokens: []kv.Token{1, 2},
		BlockSize: 2, LoRA: "a", Tier: kv.CPU, Group: 3, SpecKind: "mla_attention",
	}
	without := func(change func(*kv.Event)) kv.Event {
		e := full
		change(&e)
		return e
	}
	bare := func(change func(*kv.Event)) kv.Event {
		return without(func(e *kv.Event) { e.Bare = true; change(e) })
	}
	windowed := without(func(e *kv.Event) { e.Window = 4096 })
	array := func(n int) []any {
		return []any{
			"BlockStored",
			[]any{7},
			6,
			[]any{1, 2},
			2, 1, "CPU", "a",
			[]any{[]any{"a"}},
			3, "mla_attention", 4096,
			"later",
		}[:n]
	}
	for _, tt := range []struct {
		name  string
		event any
		want  kv.Event
	}{
		{
			"array, v0.9: up to lora_id", array(6),
			bare(func(e *kv.Event) {
				e.LoRA = "lora_id:1"
				e.Tier = kv.GPU
				e.Group = kv.NoGroup
				e.SpecKind = ""
			}),
		},
		{
			"array, v0.10: up to medium", array(7),
			bare(func(e *kv.Event) {
				e.LoRA = "lora_id:1"
				e.Group = kv.NoGroup
				e.SpecKind = ""
			}),
		},
		{
			"array, v0.14: up to lora_name", array(8),
			bare(func(e *kv.Event) { e.Group, e.SpecKind = kv.NoGroup, "" }),
		},
		{
			"array, v0.17: up to extra_keys", array(9),
			without(func(e *kv.Event) { e.Group, e.SpecKind = kv.NoGroup, "" }),
		},
		{"array, v0.20: up to group_idx", array(10), without(func(e *kv.Event) { e.SpecKind = "" })},
		{"array, v0.22: up to kv_cache_spec_kind", array(11), full},
		{"array, v0.22: up to kv_cache_spec_sliding_window", array(12), windowed},
		{"array of a version to come", array(13), windowed},
		{
			"map with all of 0.32's keys", obj{
				"type", "BlockStored", "block_hashes",
				[]any{7},
				"parent_block_hash", 6, "token_ids",
				[]any{1, 2},
				"block_size", 2, "lora_id", 1, "medium", "CPU",
				"lora_name", "a", "extra_keys",
				[]any{[]any{"a"}},
				"group_idx", 3, "kv_cache_spec_kind", "mla_attention", "kv_cache_spec_sliding_window", 4096,
				"locality", "LOCAL", "ownership", "kvcr", "session_id", "s",
			}, without(func(e *kv.Event) { e.Window, e.Local = 4096, true }),
		},
		{
			"map with nil for what may be nil", obj{
				"type", "BlockStored", "block_hashes",
				[]any{7},
				"parent_block_hash", nil, "token_ids",
				[]any{1, 2},
				"block_size", 2, "lora_id", nil, "medium", nil,
				"lora_name", nil, "extra_keys", nil, "group_idx", nil, "kv_cache_spec_kind", nil,
			}, kv.Event{
				Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Tokens: []kv.Token{1, 2}, BlockSize: 2, Group: kv.NoGroup,
				Bare: true,
			},
		},
		{
			"map of a version to come: keys that are no strings", obj{
				[]any{"type", obj{1, 2}},
				"x",
				obj{"type", "AllBlocksCleared"},
				[]any{1},
				nil, nil, "type", "BlockStored", "block_hashes",
				[]any{7},
				"parent_block_hash", 6, "token_ids",
				[]any{1, 2},
				"block_size", 2, "lora_name", "a", "medium", "CPU", "group_idx", 3, "kv_cache_spec_kind", "mla_attention",
			}, bare(func(*kv.Event) {}),
		},
		{"map with 16-bit lengths throughout", wide(obj{
			"type", "BlockStored", "block_hashes",
			[]any{7},
			"parent_block_hash", 6, "token_ids",
			[]any{1, 2},
			"block_size", 2, "lora_id", 1, "medium", "CPU",
			"lora_name", "a", "extra_keys",
			[]any{[]any{"a"}},
			"group_idx", 3, "kv_cache_spec_kind", "mla_attention",
		}), full},
		{
			"removal with all of 0.32's keys",
			obj{
				"type", "BlockRemoved", "block_hashes",
				[]any{7, 8},
				"medium", "STORAGE", "group_idx", 1, "locality",
				"REMOTE", "ownership", "kvcr",
			},
			kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{7, 8}, Tier: kv.Disk, Group: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := dirty()
			stats, err := Decode(batch([]any{"BlockRemoved", []any{1}}, tt.event, []any{"AllBlocksCleared"}), got)
			if err != nil || stats != (DecodeStats{}) || len(got.Events) != 3 {
				t.Fatalf("got %d events, stats %+v, %v; want 3 events and no faults", len(got.Events), stats, err)
			}
			if !equalEvents(&got.Events[1], &tt.want) {
				t.Errorf("got %+v\nwant %+v", got.Events[1], tt.want)
			}
		})
	}
}

// wide encodes v with the longest encodings of msgpack: 32-bit lengths and 64-bit numbers.
func wide(v any) raw {
	head := func(code byte, n int) raw { return binary.BigEndian.AppendUint32(raw{code}, uint32(n)) }
	var out raw
	switch v := v.(type) {
	case []any:
		out = head(0xdd, len(v))
		for _, e := range v {
			out = append(out, wide(e)...)
		}
	case obj:
		out = head(0xdf, len(v)/2)
		for _, e := range v {
			out = append(out, wide(e)...)
		}
	case string:
		out = append(head(0xdb, len(v)), v...)
	case int:
		out = binary.BigEndian.AppendUint64(raw{0xcf}, uint64(v))
	default:
		out = pack(v)
	}
	return out
}

// TestDecodeBadEventKeepsItsBatch puts each kind of broken event between two valid events. The valid events
// are applied, and the broken event is counted.
func TestDecodeBadEventKeepsItsBatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event any
		stats DecodeStats
	}{
		{"hash is a map", []any{"BlockStored", []any{obj{}}, nil, []any{1}, 1}, DecodeStats{Malformed: 1}},
		{"hash is nil", []any{"BlockStored", []any{nil}, nil, []any{1}, 1}, DecodeStats{Malformed: 1}},
		{"hash is empty bytes", []any{"BlockStored", []any{[]byte{}}, nil, []any{1}, 1}, DecodeStats{Malformed: 1}},
		{"hash is a float", []any{"BlockStored", []any{1.5}, nil, []any{1}, 1}, DecodeStats{Malformed: 1}},
		{"hashes missing", []any{"BlockStored"}, DecodeStats{Malformed: 1}},
		{
			"hashes nil",
			obj{"type", "BlockStored", "block_hashes", nil, "token_ids", []any{}},
			DecodeStats{Malformed: 1},
		},
		{"parent is a list", []any{"BlockStored", []any{1}, []any{}, []any{1}, 1}, DecodeStats{Malformed: 1}},
		{"token is a string", []any{"BlockStored", []any{1}, nil, []any{1, 2, "x"}, 1}, DecodeStats{Malformed: 1}},
		{"tokens are bytes", []any{"BlockStored", []any{1}, nil, []byte{1, 2}, 1}, DecodeStats{Malformed: 1}},
		{"block size is negative", []any{"BlockStored", []any{1}, nil, []any{1}, -1}, DecodeStats{Malformed: 1}},
		{"medium is a number", []any{"BlockStored", []any{1}, nil, []any{1}, 1, nil, 5}, DecodeStats{Malformed: 1}},
		{
			"adapter is a list",
			[]any{"BlockStored", []any{1}, nil, []any{1}, 1, nil, "GPU", []any{}},
			DecodeStats{Malformed: 1},
		},
		{
			"extra keys are a number",
			[]any{"BlockStored", []any{1}, nil, []any{1}, 1, nil, "GPU", nil, 5},
			DecodeStats{Malformed: 1},
		},
		{"group is a string", []any{"BlockRemoved", []any{1}, "GPU", "x"}, DecodeStats{Malformed: 1, Lost: 1}},
		{
			"removal in map form, type behind the fault",
			obj{"medium", 5, "type", "BlockRemoved", "block_hashes", []any{1}},
			DecodeStats{Malformed: 1, Lost: 1},
		},
		{"unknown tag, array", []any{"BlockInactive", []any{1}, obj{"x", []any{}}}, DecodeStats{Unknown: 1}},
		{"unknown tag, map", obj{"block_hashes", 5, "type", "BlockInactive"}, DecodeStats{Unknown: 1}},
		{"tag is a number", []any{5, []any{1}}, DecodeStats{Unknown: 1}},
		{"map without a type", obj{"block_hashes", []any{1}}, DecodeStats{Unknown: 1}},
		{"no event at all", "BlockStored", DecodeStats{Unknown: 1}},
		{"an extension", raw{0xd4, 5, 0}, DecodeStats{Unknown: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := dirty()
			stats, err := Decode(batch([]any{"BlockRemoved", []any{7}}, tt.event, []any{"BlockRemoved", []any{8}}),
				got)
			if err != nil || stats != tt.stats {
				t.Errorf("got stats %+v, %v; want %+v", stats, err, tt.stats)
			}
			diffBatch(t, tt.name, got, &kv.Batch{At: time.UnixMilli(1500), Events: []kv.Event{
				{Kind: kv.Removed, Hashes: []kv.EngineHash{7}, Group: kv.NoGroup},
				{Kind: kv.Removed, Hashes: []kv.EngineHash{8}, Group: kv.NoGroup},
			}})
		})
	}
}

// Blocks of text have nil keys. TestDecodeExtraKeysOfManyBlocks puts another key at each place among them.
func TestDecodeExtraKeysOfManyBlocks(t *testing.T) {
	for n := range 40 {
		for at := range n {
			extra := make([]any, n)
			extra[at] = []any{[]byte{9}}
			var b kv.Batch
			if stats, err := Decode(batch(storedWith(5, nil, n, extra)), &b); err != nil || stats != (DecodeStats{}) {
				t.Fatalf("got stats %+v, %v; want no faults", stats, err)
			}
			want := make([][]byte, n)
			want[at] = []byte{'b', 1, 9}
			if got := b.Events[0].Extra; !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("key at %d of %d: got %q, want %q", at, n, got, want)
			}
		}
	}
}

// TestDecodeTokensModel decodes ids of random widths. Most ids have their shortest form. After the ids, the
// payload continues for various lengths.
func TestDecodeTokensModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		oddOnes := rapid.SampledFrom([]int{0, 0, 1, 3, 50}).Draw(t, "odd ones in a hundred")
		ids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kv.Token {
			return rapid.Uint32().Draw(t, "id") >> rapid.IntRange(0, 31).Draw(t, "shift")
		}), 0, 300).Draw(t, "ids")
		for range rapid.IntRange(0, 200).Draw(t, "of three bytes") {
			ids = append(ids, kv.Token(256+len(ids)))
		}
		ids = append(ids, ids[:rapid.IntRange(0, len(ids)).Draw(t, "again")]...)
		wire := make([]any, len(ids))
		for i, id := range ids {
			wire[i] = uint64(id)
			if rapid.IntRange(0, 99).Draw(t, "odd") < oddOnes {
				forms := wireInt(uint64(id))
				wire[i] = forms[rapid.SampledFrom(slices.Sorted(maps.Keys(forms))).Draw(t, "form")]
			}
		}
		event := obj{"type", "BlockStored", "block_hashes", []any{}, "block_size", 1, "token_ids", wire}
		payload := pack([]any{1.5, []any{event}, 0, make([]byte, rapid.IntRange(0, 100).Draw(t, "behind"))})
		var b kv.Batch
		if stats, err := Decode(payload, &b); err != nil || stats != (DecodeStats{}) ||
			!slices.Equal(b.Events[0].Tokens, ids) {
			t.Fatalf("%s: got %+v, %v, %+v; want %v", hex.EncodeToString(payload), stats, err, b.Events, ids)
		}
	})
}

func TestStrides(t *testing.T) {
	for c := range 256 {
		want := map[int]uint64{0xcc: 2, 0xcd: 3, 0xce: 5}[c]
		if c < 0x80 {
			want = 1
		}
		for lane := range 8 {
			for _, beside := range []uint64{0, lanes * 0xff} { // the other lanes must not change the result
				b := beside&^(0xff<<(8*lane)) | uint64(c)<<(8*lane)
				got := strides(b) >> (8 * lane) & 0xff
				if want != 0 && got != want || got < 1 || got > 9 {
					t.Errorf("code %#x in lane %d beside %#x: got %d, want %d", c, lane, beside, got, want)
				}
			}
		}
		if got := remarks[c]; (got&oddNumber == 0) != (want != 0) || (got&notThree == 0) != (want == 3) {
			t.Errorf("code %#x: got remarks %d, which contradict the stride %d", c, got, want)
		}
	}
}

func TestReadFrames(t *testing.T) {
	topic := []byte("kv@a@m")
	none := []byte{}
	body := []byte{1, 2, 3}
	five, end := seqFrame(5), seqFrame(endOfReplay)
	for _, tt := range []struct {
		name   string
		frames [][]byte
		live   bool
		reply  bool
		end    bool
		seq    uint64
	}{
		{name: "live", frames: [][]byte{topic, five, body}, live: true, reply: true, seq: 5},
		{
			name: "live without topic, or a replay of 3", frames: [][]byte{none, five, body}, live: true, reply: true,
			seq: 5,
		},
		{name: "replay of 4", frames: [][]byte{none, topic, five, body}, reply: true, seq: 5},
		{name: "replay of 4 without topic", frames: [][]byte{none, none, five, body}, reply: true, seq: 5},
		{name: "end of 3: never live", frames: [][]byte{none, end, none}, reply: true, end: true, seq: endOfReplay},
		{name: "end of 4", frames: [][]byte{none, none, end, none}, reply: true, end: true, seq: endOfReplay},
		{name: "sequence of 4 bytes", frames: [][]byte{topic, five[:4], body}},
		{name: "sequence of 9 bytes", frames: [][]byte{topic, append(five[:8:8], 0), body}},
		{name: "no sequence", frames: [][]byte{topic, none, body}},
		{name: "nothing", frames: nil},
		{name: "one frame", frames: [][]byte{body}},
		{name: "two frames", frames: [][]byte{five, body}},
		{name: "five frames", frames: [][]byte{none, none, topic, five, body}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if m, ok := readLive(tt.frames); ok != tt.live ||
				ok && (m.seq != tt.seq || !bytes.Equal(m.payload, body)) {
				t.Errorf("live: got %+v, %v; want sequence number %d, %v", m, ok, tt.seq, tt.live)
			}
			if m, end, ok := readReply(tt.frames); ok != tt.reply || end != tt.end || ok && m.seq != tt.seq {
				t.Errorf("reply: got %+v, end %v, %v; want sequence number %d, end %v, %v",
					m, end, ok, tt.seq, tt.end, tt.reply)
			}
		})
	}
}

// FuzzFrames splits bytes into frames and reads them as a live message and as a reply, without panics. The
// sequence number and the payload are the last two frames, or the frames are refused.
func FuzzFrames(f *testing.F) {
	for _, c := range captures(f) {
		var flat []byte
		for _, frame := range c.Frames {
			flat = append(append(flat, byte(min(len(frame), 255))), frame[:min(len(frame), 255)]...)
		}
		f.Add(flat)
	}
	f.Fuzz(func(t *testing.T, flat []byte) {
		var frames [][]byte
		for len(flat) > 0 {
			n := min(int(flat[0]), len(flat)-1)
			frames = append(frames, flat[1:1+n])
			flat = flat[1+n:]
		}
		live, isLive := readLive(frames)
		reply, end, isReply := readReply(frames)
		if isLive && (!isReply || end || len(frames) != 3) {
			t.Errorf("live message: got reply %v, end %v, %d frames; want true, false, 3", isReply, end, len(frames))
		}
		if !isReply {
			return
		}
		n := len(frames)
		if !bytes.Equal(reply.payload, frames[n-1]) || !bytes.Equal(seqFrame(reply.seq), frames[n-2]) ||
			isLive && live.seq != reply.seq {
			t.Errorf("%q: got %d, %q; want the last two frames", frames, reply.seq, reply.payload)
		}
	})
}
