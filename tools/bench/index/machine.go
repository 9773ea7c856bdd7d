package index

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// machine is what memory and one core can do. Memory is as Go gives it, in small pages, so that a miss of the
// cache mostly misses the TLB too.
type machine struct {
	latencyNS     float64 // a read that waits for the one before
	randomNS      float64 // a read at random, many under way at once
	hugeLatencyNS float64 // the same two in huge pages, 0 where the kernel gives none
	hugeRandomNS  float64
	bytesPerNS    float64 // read in order
	hashNS        float64 // xxhash of the 72 bytes of a block: key of the one before, 16 tokens
}

const lineWords = 8

// measureMachine reads an array of so many bytes, a power of two.
func measureMachine(size int) machine {
	a := make([]uint64, size/8)
	weave(a)
	m := machine{latencyNS: chase(a), randomNS: scatter(a), bytesPerNS: sweep(a), hashNS: hashBlocks()}
	runtime.KeepAlive(a)
	debug.FreeOSMemory()
	if h, free := hugePages(size); h != nil {
		weave(h)
		m.hugeLatencyNS, m.hugeRandomNS = chase(h), scatter(h)
		free()
	}
	return m
}

// best takes the better of two measurements: whatever else runs makes them only worse.
func (m machine) best(o machine) machine {
	return machine{
		latencyNS: min(m.latencyNS, o.latencyNS), randomNS: min(m.randomNS, o.randomNS),
		hugeLatencyNS: min(m.hugeLatencyNS, o.hugeLatencyNS), hugeRandomNS: min(m.hugeRandomNS, o.hugeRandomNS),
		bytesPerNS: max(m.bytesPerNS, o.bytesPerNS), hashNS: min(m.hashNS, o.hashNS),
	}
}

func (m machine) add(r Report) {
	r.Add("machine_read_latency_ns", m.latencyNS)
	r.Add("machine_read_random_ns", m.randomNS)
	if m.hugeLatencyNS > 0 {
		r.Add("machine_read_latency_huge_ns", m.hugeLatencyNS)
		r.Add("machine_read_random_huge_ns", m.hugeRandomNS)
	}
	r.Add("machine_read_gb_s", m.bytesPerNS)
	r.Add("machine_hash_72_bytes_ns", m.hashNS)
}

// weave has the first word of every cache line name another line, all in one ring and in no order that a
// prefetcher knows: a linear congruential generator of full period.
func weave(a []uint64) {
	lines := uint64(len(a) / lineWords)
	for i := range lines {
		a[i*lineWords] = (i*6364136223846793005 + 1442695040888963407) & (lines - 1)
	}
}

// reads is how many random reads are timed.
const reads = 1 << 21

// chase follows the ring and returns the time of a step.
func chase(a []uint64) float64 {
	at, start := uint64(0), time.Now()
	for range reads {
		at = a[at*lineWords]
	}
	took := time.Since(start)
	runtime.KeepAlive(at)
	return float64(took) / reads
}

// scatter reads lines at random, none depending on another, and returns the time of one.
func scatter(a []uint64) float64 {
	last := uint64(len(a)/lineWords - 1)
	sum := uint64(0)
	start := time.Now()
	for i := range uint64(reads) {
		sum += a[mix(i)&last*lineWords]
	}
	took := time.Since(start)
	runtime.KeepAlive(sum)
	return float64(took) / reads
}

// sweep reads all lines in order and returns bytes a nanosecond.
func sweep(a []uint64) float64 {
	start := time.Now()
	readLines(a)
	return float64(8*len(a)) / float64(time.Since(start))
}

func hashBlocks() float64 {
	const n = 1 << 18
	var block [72]byte
	start := time.Now()
	for range n {
		binary.LittleEndian.PutUint64(block[:], xxhash.Sum64(block[:]))
	}
	return float64(time.Since(start)) / n
}

// hugePages maps memory that the kernel was asked to back with huge pages, or returns nil.
func hugePages(size int) (a []uint64, free func()) {
	const madvHugepage = 14
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil
	}
	free = func() {
		if err := syscall.Munmap(b); err != nil {
			panic(err) // b is what was mapped
		}
	}
	if err := syscall.Madvise(b, madvHugepage); err != nil {
		free()
		return nil, nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), size/8), free
}
