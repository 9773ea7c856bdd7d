package orchestrator

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// fullOnce is a file on a disk that gets full: the second write writes only half of its bytes.
type fullOnce struct {
	io.WriteCloser
	writes *int
}

func (f fullOnce) Write(p []byte) (int, error) {
	if *f.writes++; *f.writes != 2 {
		return f.WriteCloser.Write(p)
	}
	n, err := f.WriteCloser.Write(p[:len(p)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

// After a full disk, the file of decisions has only whole lines: a reader such as jq stops at half a
// record.
func TestAFullDiskLeavesNoHalfRecord(t *testing.T) {
	file, writes := filepath.Join(t.TempDir(), "decisions.jsonl"), 0
	full := func(o *Options) {
		o.openDecisions = func(cfg config.Decisions, device bool) io.WriteCloser {
			out := observe.OpenDecisions(cfg, device)
			if l, ok := out.(*observe.LineFile); ok {
				open := l.Open
				l.Open = func() (io.WriteCloser, error) {
					out, err := open()
					return fullOnce{out, &writes}, err
				}
				return l
			}
			return fullOnce{out, &writes}
		}
	}
	var want []string
	in(t, setup{config: func(c *config.Config) { c.Decisions.File = file }, options: full}, func(w *world) {
		for i := range 4 {
			w.ask(chat(true))
			if i != 1 {
				want = append(want, w.o.ring.Newest(1)[0].ID)
			}
			time.Sleep(time.Second)
		}
		if n := w.count("tandem_decisions_unwritten_total", "failed"); n != 1 {
			t.Errorf("counted %d records as not written, want 1", n)
		}
	})
	if got := recordsIn(t, file); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the file has the records %v, want %v", got, want)
	}
}
