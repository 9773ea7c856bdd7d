package kv_test

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/kv"
)

// A key names a block and all that lies before it: two prompts share as many keys as leading blocks.
func ExampleChain() {
	chain := kv.NewChain("m", 4)
	root := chain.Root("", "") // of no adapter and no salt
	hello := chain.Append(nil, root, []kv.Token{1, 2, 3, 4, 5, 6, 7, 8, 9})
	other := chain.Append(nil, root, []kv.Token{1, 2, 3, 4, 5, 6, 7, 80, 9, 10, 11, 12})
	salted := chain.Append(nil, chain.Root("", "tenant-7"), []kv.Token{1, 2, 3, 4})

	fmt.Println("full blocks:", len(hello), "and", len(other))
	fmt.Println("in common:", kv.Common(hello, other))
	fmt.Println("with another salt:", kv.Common(hello, salted))
	// Output:
	// full blocks: 2 and 3
	// in common: 1
	// with another salt: 0
}

// The index follows the engines' own events. An engine names its blocks as it likes; their tokens say which
// they are.
func ExampleIndex() {
	const engineA, engineB kv.Holder = 0, 1
	chain := kv.NewChain("m", 4)
	index := kv.NewIndex(kv.Options{Chain: chain})
	prompt := []kv.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

	index.Apply(engineA, &kv.Batch{Events: []kv.Event{
		{Kind: kv.Stored, Hashes: []kv.EngineHash{71, 72, 73}, Tokens: prompt, BlockSize: 4, Group: kv.NoGroup},
	}})
	index.Apply(engineB, &kv.Batch{Events: []kv.Event{
		{Kind: kv.Stored, Hashes: []kv.EngineHash{9}, Tokens: prompt[:4], BlockSize: 4, Group: kv.NoGroup},
		{
			Kind: kv.Stored, Hashes: []kv.EngineHash{5}, Parent: 4, HasParent: true,
			Tokens: prompt[4:8], BlockSize: 4, Group: kv.NoGroup,
		},
	}})

	keys := chain.Append(nil, chain.Root("", ""), prompt)
	depth := make([]int32, 2)
	index.Match(keys, depth)
	fmt.Println("leading blocks on A and B:", depth) // B's second event follows a block that nobody saw

	index.Apply(engineA, &kv.Batch{Events: []kv.Event{
		{Kind: kv.Removed, Hashes: []kv.EngineHash{72}, Group: kv.NoGroup},
	}})
	index.Match(keys, depth)
	fmt.Println("after A evicted its second:", depth)
	// Output:
	// leading blocks on A and B: [3 1]
	// after A evicted its second: [1 1]
}
