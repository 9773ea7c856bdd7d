package orchestrator

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// fullOnce is a file whose disk is full at the second write: the disk takes half of the bytes.
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

// After a full disk the file of decisions has whole lines alone: a reader such as jq stops at half a record.
func TestAFullDiskLeavesNoHalfRecord(t *testing.T) {
	file, writes := filepath.Join(t.TempDir(), "decisions.jsonl"), 0
	full := func(o *Options) {
		o.openDecisions = func(cfg config.Decisions, device bool) io.WriteCloser {
			out := openDecisions(cfg, device)
			if l, ok := out.(*lineFile); ok {
				open := l.open
				l.open = func() io.WriteCloser { return fullOnce{open(), &writes} }
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
				want = append(want, w.o.ring.newest(1)[0].ID)
			}
			time.Sleep(time.Second)
		}
		if n := w.count("tandem_decisions_unwritten_total", "failed"); n != 1 {
			t.Errorf("%d records are counted as not written, want 1", n)
		}
	})
	if got := recordsIn(t, file); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v are in the file, want %v", got, want)
	}
}

// What a crash left of a record is cut off before the next record comes. Other contents stay as they are.
func TestRecordsFollowTheLastWholeLine(t *testing.T) {
	long := `{"id":"` + strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct{ before, want string }{
		"no file yet":          {"", "new\n"},
		"whole":                {"{\"id\":\"a\"}\n", "{\"id\":\"a\"}\nnew\n"},
		"half a record":        {"{\"id\":\"a\"}\n{\"id\":\"b", "{\"id\":\"a\"}\nnew\n"},
		"a byte of a record":   {"{\"id\":\"a\"}\n{", "{\"id\":\"a\"}\nnew\n"},
		"half a long record":   {"{\"id\":\"a\"}\n" + long, "{\"id\":\"a\"}\nnew\n"},
		"half the only record": {long, "new\n"},
		"another file":         {"one line", "one line\nnew\n"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "decisions.jsonl")
			if c.before != "" {
				if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out := openDecisions(config.Decisions{File: file, FileSize: 1 << 20}, false)
			if _, err := io.WriteString(out, "new\n"); err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != c.want {
				t.Errorf("the file has %d bytes ending in %.20q: %v", len(got), got[max(0, len(got)-20):], err)
			}
		})
	}
}

// A write after a failed one does not go where the failed one ended: a file that was put aside before is
// written at an offset.
func TestAFullDiskBehindAFilePutAside(t *testing.T) {
	file, writes := filepath.Join(t.TempDir(), "decisions.jsonl"), 0
	out := openDecisions(config.Decisions{File: file, FileSize: 1 << 20, FileKeep: 2}, false)
	l, ok := out.(*lineFile)
	if !ok {
		t.Fatalf("%T writes records", out)
	}
	open := l.open
	l.open = func() io.WriteCloser { return fullOnce{open(), &writes} }
	line := `{"id":"` + strings.Repeat("x", 600<<10) + "\"}\n"
	_, first := io.WriteString(out, line)
	writes = 0
	_, second := io.WriteString(out, line) // in a new file
	_, failed := io.WriteString(out, line)
	_, last := io.WriteString(out, "{\"id\":\"last\"}\n")
	if err := errors.Join(first, second, last, out.Close()); err != nil || !errors.Is(failed, syscall.ENOSPC) {
		t.Fatal(err, failed)
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != line+"{\"id\":\"last\"}\n" {
		t.Errorf("the file has %d bytes, want %d: %v", len(got), len(line)+14, err)
	}
}
