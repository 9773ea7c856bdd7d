package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"time"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/liveness"
)

// UsageLine is a line of the file of usage: what one key has used of one model in a time of at most an hour.
type UsageLine struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	keys.Used
}

// usageFile appends what keys have used to a file, at each full hour and at the end. What could not be
// written is in the next lines.
type usageFile struct {
	log   *slog.Logger
	disk  liveness.Disk
	used  *keys.Usage
	name  func() string // of the file in force, "" for none
	since time.Time     // owned by run
}

// run writes until ctx ends, and then once more.
func (u *usageFile) run(ctx context.Context) {
	u.since = time.Now()
	for {
		next := time.Now().Truncate(time.Hour).Add(time.Hour)
		select {
		case <-time.After(time.Until(next)):
			u.write(ctx, time.Now())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveness.LastWrite)
			defer cancel()
			u.write(last, time.Now())
			return
		}
	}
}

// write appends a line for each key and model. Without a file, what was used is forgotten.
func (u *usageFile) write(ctx context.Context, now time.Time) {
	rows, name := u.used.Take(), u.name()
	if name == "" || len(rows) == 0 {
		u.since = now
		return
	}
	var lines bytes.Buffer
	for _, row := range rows {
		_ = json.NewEncoder(&lines).Encode(UsageLine{u.since.UTC(), now.UTC(), row}) // a buffer takes all
	}
	err := u.disk.Write(ctx, name, func() error { return appendTo(name, lines.Bytes()) })
	if err != nil {
		u.log.Warn("usage was not written, and is in the next lines", "file", name, "error", err)
		for _, row := range rows {
			u.used.Add(row)
		}
		return
	}
	u.since = now
}

// appendTo appends whole lines to a file, which is made where there is none.
func appendTo(name string, lines []byte) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
