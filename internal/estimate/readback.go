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
	// leastRead is the tokens from which reading back can be told from the rest of a prompt.
	leastRead = 256
)

// ReadBack is what a prompt has to read back from lower memories.
type ReadBack struct {
	Tokens [media]int32 // by memory
	Rest   float64      // predicted seconds of the rest of the prompt, and of the work ahead
	Alone  bool         // no other prompt was there when it was booked
	Unsure bool         // perhaps the blocks are not there, and are computed
}

// Reading returns the predicted seconds in which r reads tokens back, by memory.
func (p *Pool) Reading(r *Prompts, tokens [media]int32, now time.Time) (seconds float64) {
	if tokens == ([media]int32{}) {
		return 0
	}
	computes := p.computes(r)
	for memory, n := range tokens {
		if n > 0 {
			seconds += float64(n) * r.reads.Seconds(&p.reads, memory, computes, now)
		}
	}
	return seconds
}

// Arriving returns the seconds in which r reads a token back that it has pulled from another engine. Pulled
// blocks arrive in the memory of the host, which is the first of the lower memories.
func (p *Pool) Arriving(r *Prompts, now time.Time) float64 {
	return p.Reading(r, [media]int32{1000}, now) / 1000
}

// Pauses reports whether r has nothing to compute for a noticeable time, because it waits for the blocks of
// x, or may have computed them. Then the time of the prompt teaches no speed. A nil x is nothing to read.
func (p *Pool) Pauses(r *Prompts, x *ReadBack, now time.Time) bool {
	return x != nil && (x.Unsure || x.Alone && p.Reading(r, x.Tokens, now) > x.Rest/2)
}

// HasRead takes in how long a prompt on r took that had blocks in one lower memory.
func (p *Pool) HasRead(r *Prompts, x *ReadBack, took float64, now time.Time) {
	sum := 0
	for _, n := range x.Tokens {
		sum += int(n)
	}
	for memory, n := range x.Tokens {
		if n := int(n); n >= leastRead && n == sum {
			r.reads.Learn(&p.reads, memory, p.computes(r), ReadBackTook(took, x.Rest, n, now))
		}
	}
}

// computes returns the seconds in which r computes a token.
func (p *Pool) computes(r *Prompts) float64 {
	return (&Pricing{Speed: p.PrefillSpeed(r)}).Usual(1)
}

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

// Measured returns the measured seconds to read a token back from each memory, 0 where nothing is measured.
func (r *Prompts) Measured() (seconds [media]float64) {
	for memory := range r.reads {
		if v := &r.reads[memory]; v.samples > 0 {
			seconds[memory] = math.Exp(v.log)
		}
	}
	return seconds
}

// ReadState is the saved time to read back from one memory.
type ReadState struct {
	Memory   int       `json:"memory"` // as in [ReadBacks]
	At       time.Time `json:"at"`     // of the newest sample
	PerToken float64   `json:"seconds_per_token"`
}

// readState returns the measured times of r.
func (r *Prompts) readState() (out []ReadState) {
	for memory, seconds := range r.Measured() {
		if seconds > 0 {
			out = append(out, ReadState{memory, r.reads[memory].at, seconds})
		}
	}
	return out
}

// restoreReads lets r begin with saved times, where r has no samples. The older a time is, the nearer r is to
// the guess. It reports whether it took anything.
func (p *Pool) restoreReads(r *Prompts, saved []ReadState, now time.Time) (taken bool) {
	computes := p.computes(r)
	for _, s := range saved {
		if s.Memory < 0 || s.Memory >= media || r.reads[s.Memory].samples > 0 ||
			!(s.PerToken > 0) || s.PerToken > factorCap*computes {
			continue
		}
		prior := math.Log(computes * readPart)
		log := prior + Faded(s.At, now)*(math.Log(s.PerToken)-prior)
		r.reads[s.Memory] = value{log: log, spread: math.Log(guessed), samples: 1, at: now}
		if all := &p.reads[s.Memory]; all.samples == 0 {
			*all = r.reads[s.Memory]
		}
		taken = true
	}
	return taken
}
