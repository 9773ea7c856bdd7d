package http1

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// hangups watches the sockets of a listener for clients that hang up. One goroutine watches all sockets with
// one epoll set. Each socket is registered once, for as long as it lives, and only for the end of the
// client's direction. So a request costs nothing.
type hangups struct {
	once sync.Once
	file *os.File // of the epoll set, nil where there is none
	raw  syscall.RawConn

	ended chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards the following
	conns  map[uint64]*conn
	last   uint64 // number of the newest connection: a file descriptor may be reused before its event arrives
	noMore bool   // nothing will be added
	over   bool
}

func newHangups() *hangups { return &hangups{conns: map[uint64]*conn{}, ended: make(chan struct{})} }

// begin makes the set, when the first socket comes; what the system refuses is not asked for again.
func (h *hangups) begin() {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return
	}
	if syscall.SetNonblock(fd, true) != nil {
		syscall.Close(fd)
		return
	}
	h.file = os.NewFile(uintptr(fd), "hang-ups")
	if h.raw, err = h.file.SyscallConn(); err != nil {
		h.file.Close()
		h.file = nil
		return
	}
	go func() { // closeIfOver waits for it
		defer close(h.ended)
		_ = h.raw.Read(func(fd uintptr) bool { // until the file is closed
			h.take(int(fd))
			return false
		})
	}()
}

const (
	hangUpEvents = syscall.EPOLLRDHUP | 1<<31 // EPOLLET
	someEvents   = 64
)

// take notifies the connections that have an event.
func (h *hangups) take(fd int) {
	var events [someEvents]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(fd, events[:], 0)
		if err == syscall.EINTR {
			continue
		}
		for _, e := range events[:max(n, 0)] {
			if c := h.of(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); c != nil {
				c.life.hungUp()
			}
		}
		if n < len(events) {
			return
		}
	}
}

func (h *hangups) of(number uint64) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[number]
}

// add watches c until its forget is called; false: that is not possible.
func (h *hangups) add(c *conn) bool {
	if n, ok := c.nc.(notifier); ok {
		c.forget = n.OnHangUp(c.life.hungUp)
		return true
	}
	tcp, ok := c.nc.(*net.TCPConn)
	if !ok {
		return false
	}
	if h.once.Do(h.begin); h.file == nil {
		return false
	}
	socket, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	number := h.enter(c)
	c.forget = func() { h.remove(number, socket) }
	if h.control(syscall.EPOLL_CTL_ADD, number, socket) != nil {
		h.remove(number, nil)
		return false
	}
	return true
}

func (h *hangups) enter(c *conn) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.conns[h.last] = c
	return h.last
}

// remove ends the watch over a socket, nil where it was not watched yet.
func (h *hangups) remove(number uint64, socket syscall.RawConn) {
	if socket != nil {
		_ = h.control(syscall.EPOLL_CTL_DEL, number, socket) // one that is closed has left by itself
	}
	h.mu.Lock()
	delete(h.conns, number)
	h.mu.Unlock()
	h.closeIfOver()
}

func (h *hangups) control(op int, number uint64, socket syscall.RawConn) error {
	event := syscall.EpollEvent{
		Events: hangUpEvents, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32)),
	}
	var err1, err2 error
	err1 = h.raw.Control(func(set uintptr) {
		err2 = socket.Control(func(fd uintptr) { err1 = syscall.EpollCtl(int(set), op, int(fd), &event) })
	})
	if err1 != nil {
		return err1
	}
	return err2
}

// release says that nothing will be added any more: the watch ends with the last connection.
func (h *hangups) release() {
	h.mu.Lock()
	h.noMore = true
	h.mu.Unlock()
	h.closeIfOver()
}

// closeIfOver ends the watch when nothing is watched any more, and waits for its end.
func (h *hangups) closeIfOver() {
	h.mu.Lock()
	over := h.noMore && len(h.conns) == 0 && h.file != nil && !h.over
	h.over = h.over || over
	h.mu.Unlock()
	if over {
		h.file.Close()
		<-h.ended
	}
}
