package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// UsageLine is a line in the file of usage: the use of one model by one key during at most an hour.
type UsageLine struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	keys.Used
}

// usageFile appends the usage of keys to a file, at each full hour and at the end. Usage that could not be
// written is in the next lines. No line counts twice.
type usageFile struct {
	log  *slog.Logger
	disk liveness.Disk
	used *keys.Usage
	name func() string // name of the file in force; "" for none
	open func(name string) (io.WriteCloser, error)

	since time.Time // owned by run
}

// run writes until ctx ends, and then once more.
func (u *usageFile) run(ctx context.Context) {
	u.since = time.Now()
	for {
		next := time.Now().Truncate(time.Hour).Add(time.Hour)
		select {
		case <-time.After(time.Until(next)):
			if errors.Is(u.write(ctx, time.Now()), liveness.ErrStalled) {
				return // the stalled write may still succeed
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveness.LastWrite)
			defer cancel()
			_ = u.write(last, time.Now()) // which logs
			return
		}
	}
}

// write appends a line for each key and model. Without a file, the usage is dropped. write logs why lines
// could not be written.
func (u *usageFile) write(ctx context.Context, now time.Time) error {
	rows, name := u.used.Take(), u.name()
	if name == "" || len(rows) == 0 {
		u.since = now
		return nil
	}
	var lines bytes.Buffer
	ends := make([]int, len(rows))
	for i, row := range rows {
		_ = json.NewEncoder(&lines).Encode(UsageLine{u.since.UTC(), now.UTC(), row}) // a buffer takes all
		ends[i] = lines.Len()
	}
	written := 0
	err := u.disk.Write(ctx, name, func() (err error) {
		written, err = u.appendTo(name, lines.Bytes())
		return err
	})
	switch {
	case err == nil:
		u.since = now
	case errors.Is(err, liveness.ErrStalled):
		u.log.Warn("usage may not have been written", "file", name, "error", err)
	default:
		u.log.Warn("usage was not written, and is in the next lines", "file", name, "error", err)
		for i, row := range rows {
			if ends[i] > written {
				u.used.Add(row)
			}
		}
	}
	return err
}

// appendTo appends whole lines to a file. It makes the file if there is none. After an error, the file has
// got exactly the lines that are complete in the first written bytes of lines.
func (u *usageFile) appendTo(name string, lines []byte) (written int, err error) {
	f := &observe.LineFile{
		Name: name, Begin: `{"from":`, Open: func() (io.WriteCloser, error) { return u.open(name) },
	}
	written, err = f.Write(lines)
	return written, errors.Join(err, f.Close())
}

// openUsage opens a file of usage.
func openUsage(name string) (io.WriteCloser, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}
