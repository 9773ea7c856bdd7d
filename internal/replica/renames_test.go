package replica

import (
	"maps"
	"testing"
)

func TestRenames(t *testing.T) {
	was := map[ID]int{"a": 1, "b": 2}
	for name, tt := range map[string]struct {
		now  map[ID]int
		want Renames
	}{
		"as before":                    {map[ID]int{"a": 1, "b": 2}, Renames{}},
		"one has left":                 {map[ID]int{"a": 1}, Renames{}},
		"another at the name":          {map[ID]int{"a": 3, "b": 2}, Renames{}},
		"another name":                 {map[ID]int{"c": 1, "b": 2}, Renames{"a": "c", "c": ""}},
		"another name, its own taken":  {map[ID]int{"c": 1, "a": 3, "b": 2}, Renames{"a": "c", "c": ""}},
		"exchanged":                    {map[ID]int{"b": 1, "a": 2}, Renames{"a": "b", "b": "a"}},
		"the name of one that left":    {map[ID]int{"b": 1}, Renames{"a": "b", "b": ""}},
		"one after the other":          {map[ID]int{"b": 1, "c": 2}, Renames{"a": "b", "b": "c", "c": ""}},
		"twice, once under its name":   {map[ID]int{"a": 1, "A": 1, "b": 2}, Renames{}},
		"twice, and under neither":     {map[ID]int{"d": 1, "c": 1, "b": 2}, Renames{"a": "c", "c": ""}},
		"nobody is left":               {nil, Renames{}},
		"others under all these names": {map[ID]int{"a": 3, "b": 4}, Renames{}},
	} {
		if got := RenamesOf(was, tt.now); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestRekey(t *testing.T) {
	renames := Renames{"a": "b", "b": "a", "c": "d", "d": ""}
	got := Rekey(map[ID]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, renames.Now)
	if want := map[ID]int{"b": 1, "a": 2, "d": 3, "e": 5}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
