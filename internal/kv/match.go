package kv

import "math/bits"

// Match sets depth[h], for every holder h below len(depth), to the number of leading blocks of keys that h has without a hole between, by its events or, if that is more, by what
// was speculated of it. The keys must be those of one prompt from block 0 on, as [Chain.Append] makes them. It does not allocate.
func (ix *Index) Match(keys []Key, depth []int32) {
	clear(depth)
	if len(keys) == 0 {
		return
	}
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for i, bank := range ix.dir.banks {
		if len(depth) <= i*bankSize {
			break
		}
		s := staircase{bank: bank, keys: keys, depth: depth[i*bankSize:]}
		s.find()
	}
	ix.guesses.match(keys, depth)
}

// staircase looks for where each holder of one bank ends along a prompt.
//
// The holders at a key have all keys before it too, so the sets only shrink along the prompt. Where two keys have the same set, all between them have it
// as well and need no look; elsewhere the stretch is halved. For holders that end at s different blocks of n this takes about s*log2(n/s)+2s probes.
type staircase struct {
	bank  map[Key]uint64
	keys  []Key
	depth []int32
}

func (s *staircase) find() {
	everyone := ^uint64(0)
	if n := len(s.depth); n < bankSize {
		everyone = 1<<n - 1
	}
	if first := s.bank[s.keys[0]] & everyone; first != 0 {
		s.between(0, len(s.keys), first, 0)
	}
}

// between settles the holders that have keys[lo] and not keys[hi], given the different sets at both.
func (s *staircase) between(lo, hi int, atLo, atHi uint64) {
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		at := s.bank[s.keys[mid]] & atLo
		switch at {
		case atLo:
			lo = mid
		case atHi:
			hi = mid
		default:
			s.between(lo, mid, atLo, at)
			lo, atLo = mid, at
		}
	}
	for ended := atLo &^ atHi; ended != 0; ended &= ended - 1 {
		s.depth[bits.TrailingZeros64(ended)] = int32(hi)
	}
}
