package kv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func tokensOf(n int) []Token {
	tokens := make([]Token, n)
	for i := range tokens {
		tokens[i] = Token((7919*i + 13) % 152064)
	}
	return tokens
}

func TestAppendNamesFullBlocksOnly(t *testing.T) {
	for _, tt := range []struct {
		name         string
		size, tokens int
		want         int
	}{
		{"nothing", 16, 0, 0},
		{"less than a block", 16, 15, 0},
		{"a block", 16, 16, 1},
		{"a block and a bit", 16, 31, 1},
		{"odd size", 3, 10, 3},
		{"one token a block", 1, 4, 4},
		{"larger than the stack's room", 784, 2000, 2},
		{"no size", 0, 100, 0},
		{"negative size", -4, 100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewChain("m", tt.size)
			keys := c.Append(nil, c.Root("", ""), tokensOf(tt.tokens))
			if len(keys) != tt.want {
				t.Errorf("%d keys, want %d", len(keys), tt.want)
			}
			if slices.Contains(keys, 0) {
				t.Errorf("a key is 0: %v", keys)
			}
		})
	}
}

func TestZeroChainMakesNoKeys(t *testing.T) {
	var c Chain
	if keys := c.Append(nil, c.Root("", ""), tokensOf(64)); len(keys) != 0 {
		t.Errorf("keys of the zero chain: %v", keys)
	}
}

func TestBlockByBlockIsTheSameAsAppend(t *testing.T) {
	for _, size := range []int{1, 2, 3, 15, 16, 63, 64, 65, 128, 255, 256, 257, 784, 1552} {
		c := NewChain("m", size)
		tokens := tokensOf(3*size + 1)
		parent := c.Root("a", "s")
		for i, want := range c.Append(nil, parent, tokens) {
			parent = c.Block(parent, tokens[i*size:(i+1)*size], nil)
			if parent != want {
				t.Fatalf("block size %d, block %d: Block gives %x, Append %x", size, i, parent, want)
			}
		}
	}
}

// Keys never leave the process. But a change of the keys changes which prompts share a prefix, so it must
// show.
func TestKeysOfToday(t *testing.T) {
	c := NewChain("m", 16)
	got := c.Append(nil, c.Root("", ""), tokensOf(32))
	want := []Key{0x180856ef63d0eeea, 0x9529ba690b699c43}
	if !slices.Equal(got, want) {
		t.Errorf("keys %#x, want %#x", got, want)
	}
}

func TestNothingElseSharesAKey(t *testing.T) {
	tokens := tokensOf(32)
	seen := map[Key]string{}
	note := func(name string, keys ...Key) {
		t.Helper()
		for _, k := range keys {
			if other, ok := seen[k]; ok {
				t.Errorf("%s has the key %x of %s", name, k, other)
			}
			seen[k] = name
		}
	}
	c := NewChain("m", 16)
	prompt := func(c Chain, lora, salt string) []Key { return c.Append(nil, c.Root(lora, salt), tokens) }
	note("plain", prompt(c, "", "")...)
	note("other model", prompt(NewChain("n", 16), "", "")...)
	note("other block size", prompt(NewChain("m", 8), "", "")...)
	note("adapter x", prompt(c, "x", "")...)
	note("salt x", prompt(c, "", "x")...)
	note("adapter x, salt x", prompt(c, "x", "x")...)
	note("adapter xx", prompt(c, "xx", "")...)
	note("adapter x0", prompt(c, "x\x00", "")...)
	note("salt 0x", prompt(c, "", "\x00x")...)
	note("with extra", c.Block(c.Root("", ""), tokens[:16], []byte("image 1")))
	note("with other extra", c.Block(c.Root("", ""), tokens[:16], []byte("image 2")))
	note("tokens swapped",
		c.Append(nil, c.Root("", ""), append([]Token{tokens[1], tokens[0]}, tokens[2:]...))...)
}

func TestEmptyExtraIsNone(t *testing.T) {
	c := NewChain("m", 16)
	if a, b := c.Block(1, tokensOf(16), nil), c.Block(1, tokensOf(16), []byte{}); a != b {
		t.Errorf("an empty extra changes the key: %x, %x", a, b)
	}
}

// A key implies everything before it: two prompts share exactly the keys before the first block in which they
// differ.
func TestKeysShareWhatPromptsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "block size")
		tokens := rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 40)
		a, b := tokens.Draw(t, "a"), tokens.Draw(t, "b")
		c := NewChain("m", size)
		x, y := c.Append(nil, c.Root("", ""), a), c.Append(nil, c.Root("", ""), b)
		same := 0
		for same < min(len(a), len(b)) && a[same] == b[same] {
			same++
		}
		for i := range min(len(x), len(y)) {
			if got, want := x[i] == y[i], i < same/size; got != want {
				t.Fatalf("block %d of %v and %v: same key %v, want %v", i, a, b, got, want)
			}
		}
		if got, want := common(x, y), same/size; got != want {
			t.Fatalf("common of %v and %v: %d, want %d", a, b, got, want)
		}
	})
}

func TestAppendDoesNotAllocate(t *testing.T) {
	tokens := tokensOf(4096)
	for _, size := range []int{16, 784} {
		c := NewChain("m", size)
		keys := make([]Key, 0, 4096)
		if n := testing.AllocsPerRun(10, func() { keys = c.Append(keys[:0], c.Root("a", "s"), tokens) }); n != 0 {
			t.Errorf("block size %d: %v allocations", size, n)
		}
	}
}
