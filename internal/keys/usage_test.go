package keys

import (
	"slices"
	"sync"
	"testing"
)

// Uses that are counted at the same time are taken once, in order.
func TestUsageIsTakenOnce(t *testing.T) {
	var u Usage
	var wg sync.WaitGroup
	total := int64(0)
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				u.Add(Used{Key: string(rune('a' + i%2)), Model: "m", Requests: 1, Prompt: 2, Cached: 1, Generated: 3})
			}
		})
	}
	for range 10 {
		for _, row := range u.Take() {
			total += row.Generated
		}
	}
	wg.Wait()
	rows := u.Take()
	for _, row := range rows {
		total += row.Generated
		if row.Prompt != 2*row.Requests || row.Cached != row.Requests || row.Generated != 3*row.Requests {
			t.Errorf("%+v", row)
		}
	}
	sorted := slices.IsSortedFunc(rows, func(a, b Used) int { return int(a.Key[0]) - int(b.Key[0]) })
	if total != 24_000 || len(u.Take()) != 0 || !sorted {
		t.Errorf("%d tokens were taken of 24,000; rows %+v", total, rows)
	}
}
