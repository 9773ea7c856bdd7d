package index

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

func TestCorpus(t *testing.T) {
	turns, err := corpus("")
	if err != nil || len(turns) != 12031 {
		t.Fatalf("%d turns, %v; want 12031", len(turns), err)
	}
	var blocks, fresh int
	for i, u := range turns {
		if u.like >= i || (u.like < 0) != (u.kept == 0) || u.kept*traceBlock >= u.in+traceBlock {
			t.Fatalf("turn %d: %+v", i, u)
		}
		blocks += u.in / blockTokens
		fresh += max(0, u.in/blockTokens-u.kept*traceParts)
	}
	if blocks != 9_044_013 || fresh != 5_662_916 { // counted in the trace itself, independently
		t.Errorf("%d blocks of which %d are new", blocks, fresh)
	}
	again, err := decodeTurns(bytes.NewReader(encodeTurns(turns)))
	if err != nil || !slices.Equal(again, turns) {
		t.Errorf("encoded and decoded, the turns differ: %v", err)
	}
	whole := encodeTurns(turns[:3])
	for n := range whole {
		if _, err := decodeTurns(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d bytes of %d pass for a table", n, len(whole))
		}
	}
}

func TestReadTrace(t *testing.T) {
	const text = `{"timestamp":0,"input_length":1100,"output_length":7,"hash_ids":[0,1,2]}
{"timestamp":0,"input_length":600,"output_length":8,"hash_ids":[0,3]}
{"timestamp":3000,"input_length":1600,"output_length":9,"hash_ids":[0,1,4,5]}
`
	got, err := readTrace(strings.NewReader(text))
	want := []turn{{-1, 0, 1100, 7}, {0, 1, 600, 8}, {0, 2, 1600, 9}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v %v, want %+v", got, err, want)
	}
	if _, err := readTrace(strings.NewReader(text + "{")); err == nil ||
		!strings.Contains(err.Error(), "line 4") {
		t.Errorf("half a line: %v", err)
	}
}

// Prompts share as many leading keys as the trace says. Different rounds of the trace share the system prompt
// alone.
func TestStory(t *testing.T) {
	s := &story{[]turn{{-1, 0, 2000, 40}, {0, 1, 700, 8}, {0, 2, 1600, 9}, {2, 4, 1599, 9}, {2, 3, 3000, 0}}}
	shared := func(a, b int) (n int) {
		x, y := s.keys(a), s.keys(b)
		for n < min(len(x), len(y)) && x[n] == y[n] {
			n++
		}
		return n
	}
	for _, c := range []struct{ a, b, want int }{
		{0, 1, 32},
		{0, 2, 64},
		{1, 2, 32},
		{2, 3, 99},
		{2, 4, 96},
		{3, 4, 96},
		{0, 4, 64},
		{0, 5, 32},
		{7, 2, 32},
		{7, 9, 96},
	} {
		if got := shared(c.a, c.b); got != c.want {
			t.Errorf("turns %d and %d share %d blocks, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := s.answer(0); got != 2 {
		t.Errorf("answer = %d blocks, want 2: tokens 2000 to 2040 end block 125 and 126", got)
	}
}

// twin is the set of blocks of one engine.
type twin map[kv.EngineHash]bool

// publish applies a batch. It returns an error for an event that no engine could publish.
func (w twin) publish(b *kv.Batch) error {
	for i := range b.Events {
		e := &b.Events[i]
		if e.HasParent && !w[e.Parent] {
			return fmt.Errorf("event %d: parent is not there", i)
		}
		for _, h := range e.Hashes {
			if w[h] != (e.Kind == kv.Removed) {
				return fmt.Errorf("event %d: %v of a block that is there: %v", i, e.Kind, w[h])
			}
			w[h] = e.Kind == kv.Stored
			if e.Kind == kv.Removed {
				delete(w, h)
			}
		}
		if len(e.Tokens) != len(e.Hashes)*e.BlockSize {
			return fmt.Errorf("event %d: %d tokens of %d blocks", i, len(e.Tokens), len(e.Hashes))
		}
	}
	return nil
}

// The fleet publishes only events that real engines could publish: no block is stored twice, removed while it
// is absent, or stored under a missing parent. No engine holds more blocks than it has room for.
func TestFleet(t *testing.T) {
	turns, err := corpus("")
	if err != nil {
		t.Fatal(err)
	}
	for _, holders := range []int{1, 4, 40} {
		f := newFleet(&story{turns}, holders, 100_000)
		ix := newIndex()
		twins := make([]twin, holders)
		for h := range twins {
			twins[h] = twin{}
		}
		var b kv.Batch
		removed := 0
		for step := range 8000 {
			h := f.next(&b)
			if err := twins[h].publish(&b); err != nil {
				t.Fatalf("%d holders, step %d, turn %d: %v", holders, step, f.turn, err)
			}
			if e := &f.engines[h]; len(twins[h]) != e.held || e.held > e.room {
				t.Fatalf("%d holders, step %d: %d blocks, the engine counts %d and has room for %d",
					holders, step, len(twins[h]), e.held, e.room)
			}
			a := ix.Apply(h, &b)
			stored, gone := count(&b)
			if a != (kv.Applied{Stored: stored, Removed: gone}) {
				t.Fatalf("%d holders, step %d: applied %+v, want %d and %d", holders, step, a, stored, gone)
			}
			removed += gone
		}
		if removed == 0 || ix.Stats().Memberships != f.held() || f.held() < 98_000 {
			t.Errorf("%d holders: %d removed, index has %d, fleet %d",
				holders, removed, ix.Stats().Memberships, f.held())
		}
	}
}

// The least recently used blocks are evicted first, and within a prompt the last block first.
func TestEviction(t *testing.T) {
	// 32 + 8 blocks; 32 + 8 others; 40 + 1; 40 + 1.
	s := &story{[]turn{{-1, 0, 640, 0}, {0, 1, 640, 0}, {0, 2, 656, 0}, {1, 2, 656, 0}}}
	e := engine{story: s, room: 48, marks: map[segment][]mark{}}
	for turn := range 2 {
		w := e.begin(turn, 1000)
		if want := 32 * turn; w.done != want {
			t.Fatalf("turn %d finds %d blocks, want %d", turn, w.done, want)
		}
		e.prefill(new(kv.Batch), w, 40-w.done)
	}
	if w := e.begin(2, 1000); w.done != 40 || w.parent != hashOf(0, promptOf(0), 39) {
		t.Fatalf("turn 2 finds %d blocks, want 40", w.done)
	}
	e.running = nil // drop turn 2, as if it had not come
	w := e.begin(3, 1000)
	var b kv.Batch
	e.makeRoom(&b, 1)
	if got, want := gone(&b), []kv.EngineHash{hashOf(0, promptOf(0), 39)}; !slices.Equal(got, want) {
		t.Errorf("evicted %x, want %x, the end of turn 0", got, want)
	}
	e.prefill(&b, w, 1)
	b.Events = nil
	e.makeRoom(&b, 9)
	want := []kv.EngineHash{}
	for at := 38; at >= 32; at-- {
		want = append(want, hashOf(0, promptOf(0), at))
	}
	want = append(want, hashOf(0, promptOf(3), 40), hashOf(0, promptOf(1), 39))
	if got := gone(&b); !slices.Equal(got, want) {
		t.Errorf("evicted %x, want %x", got, want)
	}
}

// gone returns the blocks that a batch removes, in order.
func gone(b *kv.Batch) (all []kv.EngineHash) {
	for _, e := range b.Events {
		if e.Kind == kv.Removed {
			all = append(all, e.Hashes...)
		}
	}
	return all
}

// Payloads are as vLLM 0.32 writes them: every field is present, hashes have nine bytes, half of the tokens
// have three bytes and half five.
func TestWire(t *testing.T) {
	r := &resident{ix: newIndex(), fleet: newFleet(&story{[]turn{{-1, 0, 160_000, 0}}}, 1, 2_000_000)}
	all := r.publish(10_000).all
	if all[0].stored != stepBlocks || all[0].removed != 0 {
		t.Fatalf("first batch stores %d and removes %d", all[0].stored, all[0].removed)
	}
	if per := float64(len(all[0].payload)) / stepBlocks; per < 70 || per > 78 {
		t.Errorf("%.1f bytes a stored block", per)
	}
	for _, field := range []string{
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind",
	} {
		if !bytes.Contains(all[0].payload, []byte(field)) {
			t.Errorf("no %s in the payload", field)
		}
	}
	if removalBytes < 60 || removalBytes > 70 {
		t.Errorf("a removal takes %d bytes", removalBytes)
	}
	var b kv.Batch
	if s, err := kvevents.Decode(all[1].payload, &b); err != nil || s != (kvevents.DecodeStats{}) ||
		!b.Events[0].HasParent {
		t.Errorf("decode: %+v %v %+v", s, err, b.Events[0])
	}
}

// Every figure exists at every setting. Plain names have the worse value of the largest size.
func TestMeasure(t *testing.T) {
	got := map[string][]float64{}
	var tables bytes.Buffer
	r := Report{Add: func(name string, v float64) { got[name] = append(got[name], v) }, Say: t.Logf}
	if err := Measure(t.Context(), Quick(), r, &tables); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"lookup_6250_us", "lookup_corpus_mean_us", "lookup_corpus_p99_us", "ingest_mblocks_s", "apply_mblocks_s",
		"lookup_p99_under_ingest_us",
		"event_applied_p99_ms", "bytes_per_membership", "clear_reader_stall_ms",
	} {
		for _, at := range []string{"", "_40k_8h", "_40k_72h", "_80k_8h", "_80k_72h"} {
			// Removing a small holder falls between two lookups.
			if s := got[name+at]; len(s) != 1 || s[0] < 0 || s[0] == 0 && name != "clear_reader_stall_ms" {
				t.Errorf("%s%s = %v, want one sample above 0", name, at, s)
			}
		}
		if len(got["limit_"+name]) != 1 || !strings.Contains(tables.String(), name) {
			t.Errorf("%s has no limit or stands in no table", name)
		}
		a, b := got[name+"_80k_8h"][0], got[name+"_80k_72h"][0]
		if want := max(a, b); !rate(name) && got[name][0] != want {
			t.Errorf("%s = %v of %v and %v", name, got[name][0], a, b)
		}
		if want := min(a, b); rate(name) && got[name][0] != want {
			t.Errorf("%s = %v of %v and %v", name, got[name][0], a, b)
		}
	}
	if s := got["lookup_6250_allocs"]; len(s) != 1 || s[0] != 0 {
		t.Errorf("lookups allocate: %v", s)
	}
}

// Incomplete work is an error, never a figure.
func TestClockRefuses(t *testing.T) {
	turns, err := corpus("")
	if err != nil {
		t.Fatal(err)
	}
	r := &resident{
		ix: newIndex(), fleet: newFleet(&story{turns}, 8, 100_000), depth: make([]int32, 8),
		batches: make([]kv.Batch, 8),
	}
	if _, err := r.timeIngest(r.publish(2000)); err != nil {
		t.Fatal(err)
	}
	w := r.publish(2000)
	w.all = w.all[1:] // the beginning of the conversation is missing
	if _, err := r.timeIngest(w); err == nil {
		t.Error("a batch that depends on one left out counts as applied")
	}
	w = r.publish(2000)
	if err := newDrive(Quick(), r, w.all[len(w.all)/2:], [][]kv.Key{w.keys}).run(); err == nil {
		t.Error("a load that depends on batches left out counts as applied")
	}
	w, _ = r.publishApart(2000)
	idle := func(a *kv.Applied) error { a.Stored = w.stored; return nil }
	if _, err := r.clock(w, idle); err == nil {
		t.Error("stores that no lookup sees count as applied")
	}
	if _, err := r.clock(w, func(*kv.Applied) error { return io.EOF }); err == nil {
		t.Error("work that fails counts")
	}
}

func TestMachine(t *testing.T) {
	a := make([]uint64, 1<<12)
	weave(a)
	seen := map[uint64]bool{}
	for at := uint64(0); !seen[at]; at = a[at*lineWords] {
		seen[at] = true
	}
	if lines := len(a) / lineWords; len(seen) != lines {
		t.Errorf("the ring has %d of %d lines", len(seen), lines)
	}
	if m := measureMachine(1 << 20); m.latencyNS <= 0 || m.randomNS <= 0 || m.bytesPerNS <= 0 || m.hashNS <= 0 {
		t.Errorf("machine = %+v", m)
	}
}

func TestLimits(t *testing.T) {
	mc := machine{latencyNS: 100, randomNS: 10, bytesPerNS: 10, hashNS: 12.8}
	want := map[string]float64{
		"lookup_6250_us":        0.25, // 100 + 15*10 ns
		"lookup_corpus_mean_us": 0.13, // 100 + 3*10
		// 20 + 12.8 + 7.2 ns a stored block, 20 a removed one: 33 of both, but 25 of stores.
		"apply_mblocks_s":      25,
		"ingest_mblocks_s":     1e3 / 47.5,
		"event_applied_p99_ms": (100*47.5 + 100*26.5) / 1e6,
	}
	for _, l := range mc.limitsOf(
		counts{ends: 2, storedBytes: 75, removedBytes: 65, batchStored: 100, batchRemoved: 100},
	) {
		if w, ok := want[l.name]; ok && (l.value < w*0.999 || l.value > w*1.001) {
			t.Errorf("limit of %s = %v, want %v", l.name, l.value, w)
		}
	}
}

func TestSamples(t *testing.T) {
	if got := differentEnds([]int32{0, 3, 3, 1, 0, 7}); got != 3 {
		t.Errorf("differentEnds = %d, want 3", got)
	}
	if got := differentEnds([]int32{2, 2}); got != 1 {
		t.Errorf("differentEnds of one = %d", got)
	}
	took := []time.Duration{5, 1, 4, 2, 3}
	if got := rank(took, 0.5); got != 3 {
		t.Errorf("median = %d", got)
	}
	if got := rank(took, 0.99); got != 5 {
		t.Errorf("p99 of five = %d", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four = %v", got)
	}
}
