package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/liveness"
)

// DecisionFile appends every record to the file that the configuration names, one JSON line for each. It runs
// in the background: a disk that is slow, full or stands still costs records, which are counted, and never a
// request.
type DecisionFile struct {
	ring *Ring
	log  *slog.Logger
	disk liveness.Disk
	lost *prometheus.CounterVec                      // by reason
	open func(config.Decisions, bool) io.WriteCloser // OpenDecisions, except in tests

	looking atomic.Bool   // a check of a file has not ended
	changed chan struct{} // a token means that there may be another target

	mu     sync.Mutex // guards the following
	target *DecisionTarget
}

// DecisionTarget is one place for records. nil: there is none.
type DecisionTarget struct {
	config config.Decisions
	device bool // not a regular file: it is never renamed
	out    io.WriteCloser
	left   chan struct{} // closed when another target replaces this one
}

// unwritten is how many records may wait for the disk.
const unwritten = 4096

// writeSize is the largest number of bytes of lines in one write.
const writeSize = 64 << 10

// NewDecisionFile makes a file of the records of r. lost counts missing records by reason. open is
// [OpenDecisions], except in tests.
func NewDecisionFile(
	r *Ring, on liveness.Disk, lost *prometheus.CounterVec, open func(config.Decisions, bool) io.WriteCloser,
) *DecisionFile {
	return &DecisionFile{ring: r, log: on.Log, disk: on, lost: lost, open: open, changed: make(chan struct{}, 1)}
}

// Prepare returns the target that cfg names. If the file was not named before, it opens the file, creates it
// if it is missing, and waits for this only for a short time. Two calls must not run at the same time.
func (d *DecisionFile) Prepare(cfg config.Decisions) (*DecisionTarget, error) {
	cfg.Ring = 0 // which is the ring's
	before := d.current()
	switch {
	case cfg.File == "":
		return nil, nil
	case before != nil && before.config == cfg:
		return before, nil
	}
	t := &DecisionTarget{config: cfg, left: make(chan struct{})}
	if before != nil && before.config.File == cfg.File {
		t.device = before.device
	} else if err := d.lookAt(t); err != nil {
		return nil, fmt.Errorf("decisions.file: %w; name a file that can be written, or /dev/stdout", err)
	}
	t.out = d.open(cfg, t.device)
	return t, nil
}

// lookAt finds out which file t names, and whether the file can be opened.
func (d *DecisionFile) lookAt(t *DecisionTarget) error {
	if d.looking.Swap(true) {
		return liveness.ErrStalled // as the one before
	}
	found := make(chan bool, 1)
	err := d.disk.Look(func() error {
		defer d.looking.Store(false)
		device, err := writable(t.config.File)
		found <- device
		return err
	})
	if err == nil {
		t.device = <-found
	}
	return err
}

// Apply writes to t from the next record on; nil for no target.
func (d *DecisionFile) Apply(t *DecisionTarget) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == d.target {
		return
	}
	if d.target != nil {
		close(d.target.left)
	}
	d.target = t
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// current returns the present target; nil for none.
func (d *DecisionFile) current() *DecisionTarget {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target
}

// Run writes records until ctx ends, and then the records that wait.
func (d *DecisionFile) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if target := d.current(); target != nil {
			d.follow(ctx, target)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.changed:
		}
	}
}

// follow writes records to target and its successors, until there is no target or ctx ends.
func (d *DecisionFile) follow(ctx context.Context, target *DecisionTarget) {
	records, lost, stop := d.ring.Watch(unwritten)
	w := &recordWriter{d: d, target: target, lost: lost}
	late, cancel := liveness.WithGrace(ctx, target.left)
	defer func() {
		stop()
		w.drain(late, records)
		w.close(late)
		cancel()
	}()
	for {
		take := records
		if w.stuck {
			take = nil // the records are for the next target, if there is one
		}
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			target := d.current()
			if target == nil {
				return
			}
			if target != w.target {
				w.move(late, target, records)
				cancel()
				late, cancel = liveness.WithGrace(ctx, target.left) //nolint:fatcontext // it is made of ctx each time
			}
		case r := <-take:
			w.add(r)
			w.drain(late, records)
		}
	}
}

// recordWriter turns records into lines of one file.
type recordWriter struct {
	d       *DecisionFile
	target  *DecisionTarget
	lost    func() uint64 // records that were not put into the channel
	counted uint64        // part of lost that the metric has counted
	lines   *bytes.Buffer
	held    int  // records in lines
	failed  bool // the last write
	stuck   bool // a write to this target stands still, and is not waited for any more
}

// move continues in another file. Waiting records go into the earlier file, if it can still be written.
func (w *recordWriter) move(late context.Context, target *DecisionTarget, records <-chan *Record) {
	if !w.stuck {
		w.drain(late, records)
	}
	w.close(late)
	w.target = target
	w.failed, w.stuck = false, false
}

// close ends the file.
func (w *recordWriter) close(late context.Context) {
	if w.stuck {
		w.d.disk.Call(w.target.out.Close) // runs after the write, whenever the write ends
		return
	}
	if err := w.d.disk.Write(late, w.target.config.File, w.target.out.Close); err != nil {
		w.d.log.Warn("decisions.file cannot be closed", "file", w.target.config.File, "error", err)
	}
}

// add adds a line for r.
func (w *recordWriter) add(r *Record) {
	if w.lines == nil {
		w.lines = new(bytes.Buffer)
	}
	if err := json.NewEncoder(w.lines).Encode(r); err != nil { // every Record can be written as JSON
		w.d.log.Error("a decision cannot be written", "id", r.ID, "error", err)
		return
	}
	w.held++
}

// drain writes the waiting records together.
func (w *recordWriter) drain(late context.Context, records <-chan *Record) {
	for {
		if w.held > 0 && w.lines.Len() >= writeSize {
			w.write(late)
		}
		select {
		case r := <-records:
			w.add(r)
		default:
			w.write(late)
			return
		}
	}
}

// write writes the lines to the file, and logs when this begins to fail and when it works again.
func (w *recordWriter) write(late context.Context) {
	if slow := w.lost(); slow > w.counted {
		w.d.lost.WithLabelValues("slow").Add(float64(slow - w.counted))
		w.counted = slow
	}
	if w.held == 0 {
		return
	}
	err := w.bring(late)
	switch {
	case err != nil && !w.failed:
		w.d.log.Warn(
			"decisions cannot be written: records are dropped until writing works, requests are not affected",
			"file", w.target.config.File,
			"error", err)
	case err == nil && w.failed:
		w.d.log.Info("decisions are written again", "file", w.target.config.File)
	}
	if w.failed = err != nil; w.failed {
		w.d.lost.WithLabelValues("failed").Add(float64(w.held))
	}
	w.held = 0
	if w.stuck {
		w.lines = nil // the stalled write still uses them
		return
	}
	w.lines.Reset()
}

// bring writes the lines.
func (w *recordWriter) bring(late context.Context) error {
	if w.stuck {
		return liveness.ErrStalled
	}
	out, lines := w.target.out, w.lines.Bytes()
	err := w.d.disk.Write(late, w.target.config.File, func() error {
		_, err := out.Write(lines)
		return err
	})
	w.stuck = errors.Is(err, liveness.ErrStalled)
	return err
}
