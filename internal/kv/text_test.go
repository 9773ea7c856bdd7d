package kv

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// textTwin names chunks the obvious way: everything laid end to end, cut, and hashed with what is before.
func textTwin(c TextChain, parent Key, parts ...[]byte) (keys []Key) {
	all := slices.Concat(parts...)
	for ; len(all) >= c.size; all = all[c.size:] {
		var d xxhash.Digest
		d.Reset()
		writeNumber(&d, uint64(parent))
		d.Write(all[:c.size])
		parent = max(Key(d.Sum64()), 1)
		keys = append(keys, parent)
	}
	return keys
}

func TestTextChainIsTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewTextChain("m", rapid.IntRange(1, 40).Draw(t, "chunk"))
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 100), 0, 5).Draw(t, "parts")
		root := c.Root(rapid.SampledFrom([]string{"", "a"}).Draw(t, "lora"),
			rapid.SampledFrom([]string{"", "a"}).Draw(t, "salt"))
		got, want := c.Append([]Key{7}, root, parts...), textTwin(c, root, parts...)
		if got[0] != 7 || !slices.Equal(got[1:], want) {
			t.Fatalf("got %v behind what was there, want %v", got, want)
		}
	})
}

// Two texts share exactly the keys of the full chunks that they have in common from the start.
func TestTextSharesItsPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewTextChain("m", rapid.IntRange(1, 40).Draw(t, "chunk"))
		shared := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "shared")
		a := append(slices.Clone(shared),
			append([]byte{'a'}, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "a")...)...)
		b := append(slices.Clone(shared),
			append([]byte{'b'}, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "b")...)...)
		got := common(c.Append(nil, c.Root("", ""), a), c.Append(nil, c.Root("", ""), b))
		if want := len(shared) / c.size; got != want {
			t.Fatalf("%d keys shared, want %d", got, want)
		}
	})
}

func TestTextRoots(t *testing.T) {
	text := bytes.Repeat([]byte("all work and no play "), 100)
	seen := map[Key]string{}
	add := func(name string, key Key) {
		t.Helper()
		if other, taken := seen[key]; taken {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[key] = name
	}
	first := func(c TextChain, lora, salt string) Key { return c.Append(nil, c.Root(lora, salt), text)[0] }
	add("plain", first(NewTextChain("m", 64), "", ""))
	add("other model", first(NewTextChain("n", 64), "", ""))
	add("other chunk", first(NewTextChain("m", 128), "", ""))
	add("adapter", first(NewTextChain("m", 64), "x", ""))
	add("salt", first(NewTextChain("m", 64), "", "x"))
	add("tokens", NewChain("m", 64).Append(nil, NewChain("m", 64).Root("", ""), make([]Token, 64))[0])
	if got := (TextChain{}).Append(nil, 1, text); got != nil {
		t.Errorf("the zero chain makes %d keys", len(got))
	}
}

func TestTextDoesNotAllocate(t *testing.T) {
	c := NewTextChain("m", 256)
	tools, messages := make([]byte, 3000), make([]byte, 100_000)
	keys := make([]Key, 0, 500)
	if n := testing.AllocsPerRun(10,
		func() { keys = c.Append(keys[:0], c.Root("", ""), tools, messages) }); n != 0 || len(keys) != 103_000/256 {
		t.Errorf("%v allocations for %d keys", n, len(keys))
	}
}

func BenchmarkText(b *testing.B) {
	c := NewTextChain("m", 256)
	text := make([]byte, 400_000) // some 100,000 tokens
	keys := make([]Key, 0, len(text)/256)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		keys = c.Append(keys[:0], 1, text)
	}
}
