package telemetry

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mostWaiting is how many bytes of lines may wait for the writer.
const mostWaiting = 1 << 20

// atomicWrite is the number of bytes that a pipe accepts as one unit (PIPE_BUF), so that lines of several
// processes do not mix.
const atomicWrite = 4096

// Lines passes lines on to a writer that may block, such as standard error with a stuck reader. Write never
// waits: at most 1 MiB of lines waits, and further lines are dropped and counted. One goroutine passes the
// lines on, in order. Safe for concurrent use.
type Lines struct {
	to    io.Writer
	total atomic.Int64 // lines that were lost

	more  chan struct{} // a token means that there may be work
	ended chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the following; must not be held while anything can block
	waiting []byte
	lost    int            // lost lines since the last call of resumed
	resumed func(lost int) // nil: no callback
	closing bool
}

// NewLines returns lines that are passed on to w. The caller must call [Lines.Close].
func NewLines(w io.Writer) *Lines {
	l := &Lines{to: w, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go l.run()
	return l
}

// Lost returns the metric of lost lines.
func (l *Lines) Lost() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tandem_log_lines_lost_total",
		Help: "Lines that are missing in the log because standard error was not read.",
	}, func() float64 { return float64(l.total.Load()) })
}

// OnResume sets the function that is called when lines are passed on again after some were lost. f gets the
// number of lost lines. f may write lines.
func (l *Lines) OnResume(f func(lost int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumed = f
}

// Write accepts whole lines. It never waits and never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	if len(l.waiting)+len(p) > mostWaiting {
		n := bytes.Count(p, []byte{'\n'})
		l.lost += n
		l.total.Add(int64(n))
	} else {
		l.waiting = append(l.waiting, p...)
	}
	l.mu.Unlock()
	l.wake()
	return len(p), nil
}

func (l *Lines) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Close passes on the waiting lines, for at most d, and reports whether all were passed on. Later lines may
// be lost.
func (l *Lines) Close(d time.Duration) bool {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.wake()
	select {
	case <-l.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// run passes lines on until [Lines.Close] was called and no line waits.
func (l *Lines) run() {
	defer close(l.ended)
	var spare []byte
	for {
		l.mu.Lock()
		batch, closing := l.waiting, l.closing
		l.waiting = spare[:0]
		l.mu.Unlock()
		if len(batch) == 0 {
			if spare = batch; closing {
				return
			}
			<-l.more
			continue
		}
		l.pass(batch)
		spare = batch
		l.tell()
	}
}

// pass writes whole lines, several at once if they are short.
func (l *Lines) pass(batch []byte) {
	for len(batch) > 0 {
		end := bytes.LastIndexByte(batch[:min(len(batch), atomicWrite)], '\n') + 1
		if end == 0 { // one line that is longer
			if end = bytes.IndexByte(batch, '\n') + 1; end == 0 {
				end = len(batch)
			}
		}
		_, _ = l.to.Write(batch[:end]) // an error of the log cannot be logged
		batch = batch[end:]
	}
}

// tell reports how many lines were lost, when a reader reads again.
func (l *Lines) tell() {
	l.mu.Lock()
	lost, f := l.lost, l.resumed
	l.lost = 0
	l.mu.Unlock()
	if lost > 0 && f != nil {
		f(lost)
	}
}
