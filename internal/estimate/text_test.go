package estimate

import (
	"math"
	"testing"
)

// Texts with twice or a quarter of their estimated tokens are known after a few counts. One prompt that is a
// hundred times as long, such as one with a picture in it, hardly moves the ratio then.
func TestTextLengthFollowsCounts(t *testing.T) {
	for _, ratio := range []float64{0.25, 1, 2} {
		var x TextLength
		if x.Ratio() != 1 {
			t.Fatalf("without counts the ratio is %v", x.Ratio())
		}
		for i := range 100 {
			estimated := 400 + 16*i
			x.Learn(estimated, int(ratio*float64(estimated)))
			if got := x.Ratio(); i >= 10 && math.Abs(got/ratio-1) > 0.01 {
				t.Fatalf("after %d counts of %v times the estimate the ratio is %v", i+1, ratio, got)
			}
		}
		if x.Learn(100, 10000); math.Abs(x.Ratio()/ratio-1) > 0.05 {
			t.Errorf("one long prompt moves the ratio from %v to %v", ratio, x.Ratio())
		}
	}
}
