package replay

import (
	"errors"
	"math"
	"testing"
)

// The capacity is where the share of good answers falls below what is enough, from wherever the search
// begins.
func TestCapacity(t *testing.T) {
	search := Search{Step: 1.5, Steps: 24, Halves: 3}
	for _, from := range []float64{0.1, 7, 90} {
		holds, err := search.Capacity(from, 0.9, func(load float64) (float64, error) { return 1 - load/100, nil })
		if err != nil || math.Abs(holds-10) > 1e-6 {
			t.Errorf("from %v: %v, %v", from, holds, err)
		}
	}
}

// A fleet that holds every load has the largest as its capacity, and one that holds none has no capacity.
func TestCapacityOutOfReach(t *testing.T) {
	search := Search{Step: 2, Steps: 3, Halves: 1}
	all, err := search.Capacity(1, 0.9, func(float64) (float64, error) { return 1, nil })
	if err != nil || all != 4 {
		t.Errorf("%v, %v, want 4", all, err)
	}
	_, err = search.Capacity(1, 0.9, func(float64) (float64, error) { return 0, nil })
	if !errors.Is(err, ErrNotHeld) {
		t.Errorf("%v, want that none is held", err)
	}
}
