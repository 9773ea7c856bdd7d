package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/turns"
)

// Streamed records that l's stream has brought something. The reader of the stream may call it at every
// read, without a lock. On nil it does nothing.
func (l *Lease) Streamed(now time.Time) {
	if l != nil {
		l.member.beside.Got(&l.stream.read, now)
	}
}

// Watch begins to watch the streams of l's replica, as a piece of l is sent. Safe for concurrent use. Each
// watch is ended once.
func (l *Lease) Watch(now time.Time) turns.Watch { return l.member.beside.Watch(now) }
