package scoring

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every field of Terms counts in the total, in sums, in multiples and in the list that records and metrics
// use, once and under the field's name in JSON.
func TestEveryTermIsCountedAndListed(t *testing.T) {
	var names []string
	for field := range reflect.TypeFor[Terms]().Fields() {
		var one Terms
		reflect.ValueOf(&one).Elem().FieldByIndex(field.Index).SetFloat(2)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
		if got := one.Total(); got != 2 {
			t.Errorf("%s: the total of a term of 2 is %v", name, got)
		}
		if got := one.Plus(one); got != one.Scale(2) || got.Total() != 4 {
			t.Errorf("%s: 2 and 2 are %+v, twice 2 is %+v", name, got, one.Scale(2))
		}
		listed := maps.Collect(one.All())
		maps.DeleteFunc(listed, func(_ string, value float64) bool { return value == 0 })
		if !maps.Equal(listed, map[string]float64{name: 2}) {
			t.Errorf("%s: a term of 2 is listed as %v", name, listed)
		}
	}
	var listed []string
	for name := range (Terms{}).All() {
		listed = append(listed, name)
	}
	if !slices.Equal(listed, names) {
		t.Errorf("listed are %v, want %v", listed, names)
	}
}
