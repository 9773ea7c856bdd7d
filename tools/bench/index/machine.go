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

// machine is the speed of memory and of one core. Memory has small pages, as Go allocates it, so a cache miss
// is mostly a TLB miss too.
type machine struct {
	latencyNS     float64 // a read that depends on the read before
	randomNS      float64 // a random read, of many that run at once
	hugeLatencyNS float64 // the same two in huge pages, 0 if the kernel has none
	hugeRandomNS  float64
	bytesPerNS    float64 // read in order
	hashNS        float64 // xxhash of the 72 bytes of a block: key of the one before, 16 tokens
}

const lineWords = 8

// measureMachine reads an array of size bytes, a power of two.
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

// best takes the better of two measurements, because other programs can only make them worse.
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

// weave writes the number of another line into the first word of every cache line. All lines form one ring,
// in an order that no prefetcher predicts: a linear congruential generator of full period.
func weave(a []uint64) {
	lines := uint64(len(a) / lineWords)
	for i := range lines {
		a[i*lineWords] = (i*6364136223846793005 + 1442695040888963407) & (lines - 1)
	}
}

// reads is the number of timed random reads.
const reads = 1 << 21

// chase follows the ring and returns the time of one read.
func chase(a []uint64) float64 {
	at, start := uint64(0), time.Now()
	for range reads {
		at = a[at*lineWords]
	}
	took := time.Since(start)
	runtime.KeepAlive(at)
	return float64(took) / reads
}

// scatter reads random lines, independent of each other, and returns the time of one read.
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
			panic(err) // cannot happen: b was mapped above
		}
	}
	if err := syscall.Madvise(b, madvHugepage); err != nil {
		free()
		return nil, nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), size/8), free
}
