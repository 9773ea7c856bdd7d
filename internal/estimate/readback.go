package estimate

import (
	"math"
	"time"
)

// media is the number of memories below the GPU that are told apart.
const media = 4

// ReadBacks holds how long the engine of one replica, or of a pool together, takes to read KV blocks back to
// the GPU, for each token and from each lower memory. The zero ReadBacks knows nothing.
type ReadBacks [media]value

const (
	// readPart is the part of the time to compute a token that reading it back takes, until it is measured.
	// Host memory gives KV at some 20 GB/s. Large models compute 64 KiB of KV for each token in 10 to 100 us.
	readPart = 0.1
	// readSlack is how much longer the rest of a prompt may have taken than predicted.
	readSlack = 1.5
	// readAside is the time in seconds of a prompt that is neither computing nor reading.
	readAside = 0.05
	// readBelieved is how long a replica's measurement counts. After that, a request tests the replica again.
	readBelieved = 5 * time.Minute
)

// ReadBackTook returns a [ReadTime] sample with bounds on the time to read a token back. A prompt took so
// many seconds, and was predicted to take rest seconds beside the reading.
func ReadBackTook(took, rest float64, tokens int, at time.Time) Sample {
	n := float64(max(tokens, 1))
	low := max(0, took-rest*readSlack-readAside)
	return Sample{Of: ReadTime, At: at, Range: Range{low / n, max(took-rest/readSlack, low+readAside) / n}}
}

// Learn takes in a [ReadTime] of a memory, on a replica of pool. computes is the seconds to compute a token.
func (r *ReadBacks) Learn(pool *ReadBacks, memory int, computes float64, s Sample) {
	prior := computes * readPart
	r[memory].learn(pool.Seconds(nil, memory, computes, s.At), s.Range, s.At)
	pool[memory].learn(prior, s.Range, s.At)
}

// Seconds returns the time to read a token back from a memory. pool is what all replicas together have
// taught, nil for the pool itself.
func (r *ReadBacks) Seconds(pool *ReadBacks, memory int, computes float64, now time.Time) float64 {
	switch v := &r[memory]; {
	case v.samples > 0 && (pool == nil || now.Sub(v.at) < readBelieved):
		return math.Exp(v.log)
	case pool != nil:
		return pool.Seconds(nil, memory, computes, now)
	}
	return computes * readPart
}
