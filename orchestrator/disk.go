package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/panics"
)

// A disk can stand still: while an NFS server is away, each call on one of its files waits for that server,
// for hours if need be, and nothing can end the call. So each such call runs on a goroutine of its own.
// Nothing holds a lock while it waits for a disk, and nothing waits for one without an end.

const (
	// stallNotice is how long a write may take before it is reported.
	stallNotice = 10 * time.Second
	// lastWrite is how long the end of the router, or a change to another file, waits for a write.
	lastWrite = 3 * time.Second
	// firstLook is how long the start and a reload wait until a file is opened or read.
	firstLook = 5 * time.Second
)

// errStalled says that a disk did not answer in time.
var errStalled = errors.New("the disk does not answer")

// disk makes calls that can stand still.
type disk struct {
	field   string // that names the file
	log     *slog.Logger
	panics  panics.Guard
	stalled prometheus.Gauge // 1 while a write does not end
}

// call runs f on a goroutine of its own. What comes back is f's error.
func (d *disk) call(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the router panicked")
		d.panics.Contain(d.field, func() { err = f() })
		done <- err
	}()
	return done
}

// look runs f and returns its error, or errStalled once firstLook has passed. f goes on by itself then.
func (d *disk) look(f func() error) error {
	select {
	case err := <-d.call(f):
		return err
	case <-time.After(firstLook):
		return fmt.Errorf("%w within %v", errStalled, firstLook)
	}
}

// write runs f, which writes the file called name, and returns its error. It reports once that f does not
// end. It returns errStalled when ctx ends before f does; f goes on by itself then.
func (d *disk) write(ctx context.Context, name string, f func() error) error {
	done := d.call(f)
	notice := time.NewTimer(stallNotice)
	defer notice.Stop()
	defer d.stalled.Set(0)
	reported := false
	for {
		select {
		case err := <-done:
			if reported {
				d.log.Info("the disk of a file answers again", "field", d.field, "file", name)
			}
			return err
		case <-notice.C:
			reported = true
			d.stalled.Set(1)
			d.log.Warn("a file cannot be written: its disk does not answer; mend the disk, or name another file",
				"field", d.field, "file", name, "for", stallNotice)
		case <-ctx.Done():
			return errStalled
		}
	}
}

// withGrace returns a context that ends lastWrite after ctx or left has. Somebody must call cancel.
func withGrace(ctx context.Context, left <-chan struct{}) (late context.Context, cancel context.CancelFunc) {
	late, cancel = context.WithCancel(context.WithoutCancel(ctx)) // which the goroutine ends
	go func() {
		select {
		case <-ctx.Done():
		case <-left:
		case <-late.Done():
			return
		}
		select {
		case <-time.After(lastWrite):
			cancel()
		case <-late.Done():
		}
	}()
	return late, cancel
}
