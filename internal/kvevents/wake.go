package kvevents

import (
	"context"
	"sync"

	"github.com/pebbe/zmq4"
)

// wakeup makes the end of a context, and every ring of the waker, pollable.
type wakeup struct {
	near    *zmq4.Socket // readable after a ring
	waker   *waker       // its far end
	unwatch func()       // parts with the context
}

func (w *wakeup) open(ctx context.Context, in *sockets) (err error) {
	at := in.opt.inproc("wake")
	if w.near, err = in.make(zmq4.PAIR); err != nil {
		return err
	}
	if err = w.near.Bind(at); err != nil {
		return err
	}
	far, err := in.make(zmq4.PAIR)
	if err != nil {
		return err
	}
	w.waker = &waker{far: far}
	if err = far.Connect(at); err != nil {
		return err
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		w.waker.ring()
	})
	w.unwatch = func() {
		if !stop() {
			<-done
		}
	}
	return nil
}

// drain reads all rings.
func (w *wakeup) drain() error {
	for {
		if _, err := w.near.RecvBytes(zmq4.DONTWAIT); err != nil {
			return unlessEmpty(err)
		}
	}
}

// close separates the wakeup from its context and its ringers, so that the sockets may be closed.
func (w *wakeup) close() {
	if w.unwatch != nil {
		w.unwatch()
	}
	if w.waker != nil {
		w.waker.mute()
	}
}

// waker wakes a stream that sleeps in libzmq. The goroutines that ring share its socket, under mu.
type waker struct {
	mu  sync.Mutex // guards far
	far *zmq4.Socket
}

func (b *waker) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.far != nil {
		_, _ = b.far.SendBytes(nil, zmq4.DONTWAIT) // full: it is awake
	}
}

// mute makes ringing do nothing, so that the socket may be closed.
func (b *waker) mute() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.far = nil
}
