package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/DeRuina/timberjack"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/config"
)

// decisionFile appends every record to the file that the configuration names, a JSON line each. It runs
// behind the requests: a disk that is slow or full costs records, which are counted, and never a request.
type decisionFile struct {
	ring *ring
	log  *slog.Logger
	lost *prometheus.CounterVec // by reason

	changed chan struct{} // a token says that there may be another target

	mu     sync.Mutex // guards the following
	config config.Decisions
	target *timberjack.Logger // nil where no file is named
}

// unwritten is how many records may wait for the disk.
const unwritten = 4096

// writeSize is how many bytes of lines are put together to one write where many wait.
const writeSize = 64 << 10

func newDecisionFile(r *ring, log *slog.Logger, lost *prometheus.CounterVec) *decisionFile {
	return &decisionFile{ring: r, log: log, lost: lost, changed: make(chan struct{}, 1)}
}

// writable reports whether the file that cfg names can be written, and makes it where it is missing.
func writable(cfg config.Decisions) error {
	if cfg.File == "" {
		return nil
	}
	f, err := os.OpenFile(cfg.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY,
		0o600) //nolint:gosec // the operator names it
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("decisions.file: %w; name a file that can be written", err)
	}
	return nil
}

// apply takes what cfg says from the next record on.
func (d *decisionFile) apply(cfg config.Decisions) {
	cfg.Ring = 0 // which is the ring's
	d.mu.Lock()
	defer d.mu.Unlock()
	if cfg == d.config {
		return
	}
	d.config, d.target = cfg, nil
	if cfg.File != "" {
		d.target = &timberjack.Logger{
			Filename: cfg.File, MaxSize: int(cfg.FileSize >> 20), MaxBackups: cfg.FileKeep, Compression: "none",
			FileMode: 0o600,
		}
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// current is the file of the moment, nil for none.
func (d *decisionFile) current() *timberjack.Logger {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target
}

// run writes until ctx ends, and what has been decided by then.
func (d *decisionFile) run(ctx context.Context) {
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

// follow writes records, to target and each that comes in its place, until there is none or ctx ends.
func (d *decisionFile) follow(ctx context.Context, target *timberjack.Logger) {
	records, lost, stop := d.ring.watch(unwritten)
	w := &recordWriter{d: d, target: target, lost: lost}
	defer func() {
		stop()
		w.drain(records)
		w.close()
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			target := d.current()
			if target == nil {
				return
			}
			w.move(target, records)
		case r := <-records:
			w.add(r)
			w.drain(records)
		}
	}
}

// recordWriter turns records into lines of one file.
type recordWriter struct {
	d       *decisionFile
	target  *timberjack.Logger
	lost    func() uint64 // records that were never in the channel
	counted uint64        // of those, counted
	lines   bytes.Buffer
	held    int  // records in lines
	failed  bool // the last write
}

// move goes on in another file: what waits goes into the one before.
func (w *recordWriter) move(target *timberjack.Logger, records <-chan *Record) {
	if target == w.target {
		return
	}
	w.drain(records)
	w.close()
	w.target, w.failed = target, false
}

// close ends the file.
func (w *recordWriter) close() {
	if err := w.target.Close(); err != nil {
		w.d.log.Warn("decisions.file cannot be closed", "file", w.target.Filename, "error", err)
	}
}

// add makes a line of r.
func (w *recordWriter) add(r *Record) {
	if err := json.NewEncoder(&w.lines).Encode(r); err != nil { // a Record holds nothing that JSON cannot say
		w.d.log.Error("a decision cannot be written", "id", r.ID, "error", err)
		return
	}
	w.held++
}

// drain writes what waits, together.
func (w *recordWriter) drain(records <-chan *Record) {
	for {
		if w.lines.Len() >= writeSize {
			w.write()
		}
		select {
		case r := <-records:
			w.add(r)
		default:
			w.write()
			return
		}
	}
}

// write brings the lines to the file, and says when that begins to fail and when it works again.
func (w *recordWriter) write() {
	if slow := w.lost(); slow > w.counted {
		w.d.lost.WithLabelValues("slow").Add(float64(slow - w.counted))
		w.counted = slow
	}
	if w.held == 0 {
		return
	}
	_, err := w.target.Write(w.lines.Bytes())
	switch {
	case err != nil && !w.failed:
		w.d.log.Warn("decisions cannot be written; they are lost until they can", "file", w.target.Filename,
			"error", err)
	case err == nil && w.failed:
		w.d.log.Info("decisions are written again", "file", w.target.Filename)
	}
	if w.failed = err != nil; w.failed {
		w.d.lost.WithLabelValues("failed").Add(float64(w.held))
	}
	w.lines.Reset()
	w.held = 0
	if w.failed {
		w.lines.WriteByte('\n') // it may have taken a part of a line
	}
}
