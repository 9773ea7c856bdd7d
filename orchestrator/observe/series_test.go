package observe

import (
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A child that was found before is the family's own, whatever else was found in between.
func TestSeriesFindsTheFamilysChildren(t *testing.T) {
	family := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"a", "b"})
	s := NewSeries(family.WithLabelValues)
	for range 2 {
		for _, label := range []string{"0", "7", "", "0"} {
			if s.WithLabelValues("a", label) != family.WithLabelValues("a", label) {
				t.Errorf("%q is another child than the family's", label)
			}
		}
		for i := range mostKnown {
			s.WithLabelValues("b", strconv.Itoa(i))
		}
	}
	if n := len(*s.known.Load()); n > mostKnown {
		t.Errorf("%d children are kept, want %d at most", n, mostKnown)
	}
}

func TestSeriesAllocatesNothing(t *testing.T) {
	family := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"a", "b", "c"})
	s := NewSeries(family.WithLabelValues)
	if n := testing.AllocsPerRun(100, func() { s.WithLabelValues("a", "b", "c").Inc() }); n > 0 {
		t.Errorf("%v allocations to find a child, want none", n)
	}
}
