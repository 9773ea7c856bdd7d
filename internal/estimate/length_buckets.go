package estimate

import (
	"math"
	"math/bits"
)

// bucketOf returns the bucket of answers of so many tokens. Bucket i has the answers from 2^((i+1)/2) tokens
// on. The first bucket has the answers of one token, and the answers without a token yet.
func bucketOf(tokens int) int {
	switch {
	case tokens < 2:
		return 0
	case tokens >= 1<<(lengthBuckets/2):
		return lengthBuckets - 1
	}
	octave := bits.Len(uint(tokens)) - 1
	upper := uint64(tokens) * uint64(tokens) >> (2*octave + 1) // 1 in its upper half: roots of 2 are not whole
	return 2*octave + int(upper) - 1
}

func bucketStart(i int) float64 {
	if i == 0 {
		return 0
	}
	return math.Exp2(float64(i+1) / 2)
}
