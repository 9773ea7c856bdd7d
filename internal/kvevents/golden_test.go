package kvevents

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// captured is one line of a capture of a real vLLM; see testdata/README.md.
type captured struct {
	File    string
	Channel string          `json:"channel"`
	Step    string          `json:"step"`
	B64     []string        `json:"frames_b64"`
	Decoded json.RawMessage `json:"decoded"`
	Frames  [][]byte
}

func captures(t testing.TB) []captured {
	t.Helper()
	files, err := filepath.Glob("testdata/vllm-*.jsonl")
	if err != nil || len(files) != 4 {
		t.Fatalf("got captures %v, %v; want four in testdata", files, err)
	}
	var all []captured
	for _, name := range files {
		all = append(all, readCapture(t, name)...)
	}
	return all
}

func readCapture(t testing.TB, name string) []captured {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []captured
	for lines := bufio.NewReader(bytes.NewReader(data)); ; {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			all = append(all, readCaptured(t, name, line))
		}
		if err != nil {
			return all
		}
	}
}

func readCaptured(t testing.TB, name string, line []byte) captured {
	t.Helper()
	c := captured{File: filepath.Base(name)}
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatalf("%s: got %v, want a valid line", name, err)
	}
	for _, s := range c.B64 {
		frame, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		c.Frames = append(c.Frames, frame)
	}
	return c
}

// live returns the captured batches of the PUB socket.
func live(t testing.TB) []captured {
	all := slices.DeleteFunc(captures(t), func(c captured) bool { return c.Channel != "pub" })
	if len(all) < 40 {
		t.Fatalf("got %d live batches in testdata, want at least 40", len(all))
	}
	return all
}

// TestDecodeGolden compares every captured live batch with what the Python decoder of the capture found.
// Replayed batches have the same bytes (TestFramesGolden).
func TestDecodeGolden(t *testing.T) {
	var got kv.Batch // reused, to test that Decode removes the former content
	for _, c := range live(t) {
		stats, err := Decode(c.Frames[2], &got)
		if err != nil || stats != (DecodeStats{}) {
			t.Errorf("%s, %s: got stats %+v, %v; want no faults", c.File, c.Step, stats, err)
			continue
		}
		diffBatch(t, c.File+", "+c.Step, &got, slow(t, c.Decoded))
	}
}

// TestEncodeGolden decodes the batches of vLLM and encodes them again. The bytes must be the same.
func TestEncodeGolden(t *testing.T) {
	compared := 0
	for _, c := range live(t) {
		byteHashes := strings.Contains(c.File, "bytes")
		if byteHashes { // Decode drops the first 24 bytes of a digest, so these files are for TestEncodeBytes
			continue
		}
		var b kv.Batch
		if _, err := Decode(c.Frames[2], &b); err != nil {
			t.Fatal(err)
		}
		form := Map
		if strings.Contains(c.File, "0.20") {
			form = Array
		}
		got := Encode(nil, &EncodeBatch{At: b.At, Rank: b.Rank, Events: b.Events}, form)
		if !bytes.Equal(got, c.Frames[2]) {
			t.Errorf("%s, %s: got\n%s\nwant the bytes of vLLM\n%s",
				c.File, c.Step, hex.EncodeToString(got), hex.EncodeToString(c.Frames[2]))
		}
		compared++
	}
	if compared < 35 {
		t.Errorf("got %d compared batches, want at least 35", compared)
	}
}

// TestEncodeBytes encodes hashes as byte strings. The length must be that of vLLM. The decoded events must be
// the same.
func TestEncodeBytes(t *testing.T) {
	for _, c := range readCapture(t, "testdata/vllm-0.32.0-bytes-lora.jsonl") {
		if c.Step == "session id" {
			continue // the router neither reads nor writes session ids
		}
		var b, again kv.Batch
		if _, err := Decode(c.Frames[2], &b); err != nil {
			t.Fatal(err)
		}
		out := Encode(nil, &EncodeBatch{At: b.At, Rank: b.Rank, Events: b.Events, ByteHashes: true}, Map)
		if len(out) != len(c.Frames[2]) {
			t.Errorf("%s: got %d bytes, want %d as from vLLM", c.Step, len(out), len(c.Frames[2]))
		}
		if _, err := Decode(out, &again); err != nil {
			t.Fatal(err)
		}
		diffBatch(t, c.Step, &again, &b)
	}
}

// TestFramesGolden reads every captured message, live and replayed, of both versions. A replayed batch must
// equal the live batch: the tracker detects restarts by their difference.
func TestFramesGolden(t *testing.T) {
	counts := map[string]int{}
	said := map[string][]byte{}
	for _, c := range captures(t) {
		if c.Channel == "replay req" { // a REQ socket removes the delimiter, a DEALER socket does not
			c.Frames = slices.Insert(c.Frames, 0, []byte{})
		}
		if c.Channel == "pub" {
			m, ok := readLive(c.Frames)
			said[fmt.Sprint(c.File, m.seq)] = m.payload
			if !ok || !bytes.Equal(m.payload, c.Frames[2]) {
				t.Errorf("%s, %s: got no live batch from the frames", c.File, c.Step)
			}
			continue
		}
		m, end, ok := readReply(c.Frames)
		if !ok {
			t.Errorf("%s, %s: got no reply from the frames", c.File, c.Step)
		}
		key := strconv.Itoa(len(c.Frames)) + " frames"
		if end {
			key += " end"
		} else if live := said[fmt.Sprint(c.File, m.seq)]; len(live) == 0 || !bytes.Equal(live, m.payload) {
			// The tracker detects restarts by comparing payloads.
			t.Errorf("%s, %s: the replay of batch %d differs from the live batch", c.File, c.Step, m.seq)
		}
		counts[key]++
	}
	for _, key := range []string{"3 frames", "3 frames end", "4 frames", "4 frames end"} {
		if counts[key] == 0 {
			t.Errorf("got counts %v, want captures with %s", counts, key)
		}
	}
}

func diffBatch(t testing.TB, name string, got, want *kv.Batch) {
	t.Helper()
	if d := got.At.Sub(want.At).Abs(); d > time.Microsecond || got.Rank != want.Rank ||
		len(got.Events) != len(want.Events) {
		t.Errorf("%s: got time %v, rank %d, %d events; want %v, %d, %d",
			name, got.At, got.Rank, len(got.Events), want.At, want.Rank, len(want.Events))
		return
	}
	for i := range got.Events {
		if !equalEvents(&got.Events[i], &want.Events[i]) {
			t.Errorf("%s: event %d\n got %+v\nwant %+v", name, i, got.Events[i], want.Events[i])
		}
	}
}

func equalEvents(a, b *kv.Event) bool {
	return a.Kind == b.Kind && slices.Equal(a.Hashes, b.Hashes) && a.Parent == b.Parent &&
		a.HasParent == b.HasParent && slices.Equal(a.Tokens, b.Tokens) &&
		a.BlockSize == b.BlockSize && a.LoRA == b.LoRA && a.Tier == b.Tier && a.Group == b.Group &&
		a.SpecKind == b.SpecKind && a.Salt == b.Salt &&
		slices.EqualFunc(a.Extra, b.Extra, bytes.Equal) && a.Window == b.Window && a.Bare == b.Bare &&
		a.Local == b.Local
}

// slow has the same result as Decode. It reads the JSON of the capture by names, and does not read msgpack.
func slow(t testing.TB, decoded []byte) *kv.Batch {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(decoded))
	dec.UseNumber()
	var outer []any
	if err := dec.Decode(&outer); err != nil || len(outer) != 3 {
		t.Fatalf("got %d elements of the decoded batch, %v; want 3", len(outer), err)
	}
	ts, err := outer[0].(json.Number).Float64()
	if err != nil {
		t.Fatal(err)
	}
	b := &kv.Batch{At: time.Unix(0, int64(math.Round(ts*1e6))*1000), Rank: int(number(t, outer[2]))}
	for _, e := range outer[1].([]any) {
		b.Events = append(b.Events, slowEvent(t, e))
	}
	return b
}

func slowEvent(t testing.TB, e any) kv.Event {
	m, isMap := e.(map[string]any)
	if !isMap {
		m = named(e.([]any))
	}
	out := kv.Event{Group: kv.NoGroup}
	switch m["type"] {
	case "AllBlocksCleared":
		out.Kind = kv.Cleared
		return out
	case "BlockRemoved":
		out.Kind = kv.Removed
	case "BlockStored":
		out.Kind = kv.Stored
	default:
		t.Fatalf("slow does not know events of type %v", m["type"])
	}
	for _, h := range m["block_hashes"].([]any) {
		out.Hashes = append(out.Hashes, slowHash(t, h))
	}
	if p := m["parent_block_hash"]; p != nil {
		out.Parent, out.HasParent = slowHash(t, p), true
	}
	tokens, _ := m["token_ids"].([]any)
	for _, id := range tokens {
		out.Tokens = append(out.Tokens, kv.Token(number(t, id)))
	}
	if m["block_size"] != nil {
		out.BlockSize = int(number(t, m["block_size"]))
	}
	if m["medium"] != "GPU" {
		t.Fatalf("slow does not know medium %v", m["medium"])
	}
	out.LoRA, _ = m["lora_name"].(string)
	out.SpecKind, _ = m["kv_cache_spec_kind"].(string)
	if m["group_idx"] != nil {
		out.Group = int(number(t, m["group_idx"]))
	}
	if w := m["kv_cache_spec_sliding_window"]; w != nil {
		out.Window = int(number(t, w))
	}
	keys, told := m["extra_keys"].([]any)
	out.Bare = !told && out.Kind == kv.Stored
	for i, block := range keys {
		elements, _ := block.([]any)
		for _, x := range elements {
			switch {
			case x == out.LoRA:
			case i == 0 && !out.HasParent:
				out.Salt = x.(string)
			default:
				t.Fatalf("slow does not know extra key %v", x)
			}
		}
	}
	return out
}

func named(e []any) map[string]any {
	names := map[any][]string{
		"BlockStored": {
			"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
			"extra_keys", "group_idx",
		},
		"BlockRemoved":     {"type", "block_hashes", "medium", "group_idx"},
		"AllBlocksCleared": {"type"},
	}[e[0]]
	m := map[string]any{}
	for i, v := range e {
		m[names[i]] = v
	}
	return m
}

func slowHash(t testing.TB, h any) kv.EngineHash {
	if m, ok := h.(map[string]any); ok {
		s := m["hex"].(string)
		n, err := strconv.ParseUint(s[len(s)-16:], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kv.EngineHash(n)
	}
	return kv.EngineHash(number(t, h))
}

func number(t testing.TB, v any) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(v.(json.Number).String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
