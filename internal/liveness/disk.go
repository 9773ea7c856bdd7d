package liveness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/panics"
)

// A disk can stand still. While an NFS server is away, each call on one of its files waits for that server,
// for hours if need be. Nothing can end the call. So each such call runs on a goroutine of its own. Nothing
// holds a lock while it waits for a disk, and every wait for a disk has an end.

const (
	// stallNotice is how long a write may take before it is reported.
	stallNotice = 10 * time.Second
	// LastWrite is how long the end of the router, or a change to another file, waits for a write.
	LastWrite = 3 * time.Second
	// FirstLook is how long the start and a reload wait until a file is opened or read.
	FirstLook = 5 * time.Second
)

// ErrStalled says that a disk did not answer in time.
var ErrStalled = errors.New("the disk does not answer")

// Disk makes calls on one file that can stand still. Safe for concurrent use.
type Disk struct {
	Field   string // of the configuration that names the file
	Log     *slog.Logger
	Panics  panics.Guard
	Stalled prometheus.Gauge // 1 while a write does not end
}

// Call runs f on a goroutine of its own. The channel gets f's error.
func (d *Disk) Call(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the router panicked")
		d.Panics.Contain(d.Field, func() { err = f() })
		done <- err
	}()
	return done
}

// Look runs f and returns its error, or ErrStalled once FirstLook has passed. f then continues by itself.
func (d *Disk) Look(f func() error) error {
	select {
	case err := <-d.Call(f):
		return err
	case <-time.After(FirstLook):
		return fmt.Errorf("%w within %v", ErrStalled, FirstLook)
	}
}

// Write runs f, which writes the file called name, and returns its error. It reports once that f does not
// end. It returns ErrStalled when ctx ends before f does; f then continues by itself.
func (d *Disk) Write(ctx context.Context, name string, f func() error) error {
	done := d.Call(f)
	notice := time.NewTimer(stallNotice)
	defer notice.Stop()
	defer d.Stalled.Set(0)
	reported := false
	for {
		select {
		case err := <-done:
			if reported {
				d.Log.Info("the disk of a file answers again", "field", d.Field, "file", name)
			}
			return err
		case <-notice.C:
			reported = true
			d.Stalled.Set(1)
			d.Log.Warn("a file cannot be written: its disk does not answer; mend the disk, or name another file",
				"field", d.Field, "file", name, "for", stallNotice)
		case <-ctx.Done():
			return ErrStalled
		}
	}
}

// WithGrace returns a context that ends LastWrite after ctx or left has. The caller must call cancel.
func WithGrace(ctx context.Context, left <-chan struct{}) (late context.Context, cancel context.CancelFunc) {
	late, cancel = context.WithCancel(context.WithoutCancel(ctx)) // which the goroutine ends
	go func() {
		select {
		case <-ctx.Done():
		case <-left:
		case <-late.Done():
			return
		}
		select {
		case <-time.After(LastWrite):
			cancel()
		case <-late.Done():
		}
	}()
	return late, cancel
}
