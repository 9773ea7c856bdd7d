package orchestrator

import "sync"

// buffers are bodies on their way to and from engines, used again. A profile asked for them: they were a
// quarter of all bytes allocated.
var buffers sync.Pool

// handles are the empty ones of the pool's pointers, so that giving a buffer back allocates nothing either.
var handles sync.Pool

// keepBuffer is the largest buffer that is kept: a few long prompts must not hold memory for good.
const keepBuffer = 1 << 20

// borrow returns an empty buffer with room for n bytes.
func borrow(n int) []byte {
	handle := taken(&buffers)
	b := *handle
	*handle = nil
	handles.Put(handle)
	if cap(b) < n {
		return make([]byte, 0, max(n, 4<<10))
	}
	return b[:0]
}

// giveBuffer takes a buffer back. Nobody may use it, or anything that shares its memory, from then on.
func giveBuffer(b []byte) {
	if cap(b) > 0 && cap(b) <= keepBuffer {
		handle := taken(&handles)
		*handle = b
		buffers.Put(handle)
	}
}

// taken takes a pointer out of a pool, or makes one.
func taken(from *sync.Pool) *[]byte {
	if b, ok := from.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}
