package kv

import (
	"maps"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// A table is a map, whatever names look like: random, counted, crowded into one corner, or alike in their top
// bits when mixed.
func TestTableIsAMap(t *testing.T) {
	kinds := map[string]func(i uint64) uint64{
		"random":  func(i uint64) uint64 { return rand.New(rand.NewPCG(i, 1)).Uint64() },
		"counted": func(i uint64) uint64 { return mix(i) },
		"high":    func(i uint64) uint64 { return mix(i << 52) },
		"crowded": func(i uint64) uint64 { return i + 0xFFFFFFFF00000000 },
		"last":    func(i uint64) uint64 { return -i },
	}
	for name, nameOf := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var table table
				twin := map[uint64]cell{}
				scale := rapid.SampledFrom([]uint64{4, 40, 3000}).Draw(t, "scale")
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				grow := true
				for step := range 4 * int(scale) {
					if r.IntN(int(scale)) == 0 {
						grow = !grow
					}
					mixed := nameOf(r.Uint64N(scale))
					if (r.IntN(4) > 0) == grow {
						c := cell(step + 1)
						if e := table.put(mixed); e.cell == 0 {
							e.cell, twin[mixed] = c, c
						}
					} else if table.find(mixed) != nil {
						table.remove(mixed)
						delete(twin, mixed)
					}
				}
				checkTable(t, &table, twin)
				table.filter(func(e *entry) bool { return e.cell%3 == 0 })
				maps.DeleteFunc(twin, func(_ uint64, c cell) bool { return c%3 != 0 })
				checkTable(t, &table, twin)
			})
		})
	}
}

func checkTable(t failer, table *table, want map[uint64]cell) {
	used, room := 0, 0
	for s := range table.segments {
		checkSegment(t, s)
		used += s.used
		room += len(s.entries)
	}
	if used != len(want) || used != table.used || room != table.room {
		t.Fatalf("%d names in %d places, want %d; the account says %d in %d",
			used, room, len(want), table.used, table.room)
	}
	for mixed, c := range want {
		if e := table.find(mixed); e == nil || e.cell != c {
			t.Fatalf("name %x is not found", mixed)
		}
		if e := table.find(mixed + 1); e != nil && want[mixed+1] == 0 {
			t.Fatalf("name %x is found", mixed+1)
		}
	}
	n := 0
	for cells := range table.cells {
		n += len(cells)
	}
	if n != used {
		t.Fatalf("%d cells, want %d", n, used)
	}
}
