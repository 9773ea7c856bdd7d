package observe

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
			out := OpenDecisions(config.Decisions{File: file, FileSize: 1 << 20}, false)
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
	out := OpenDecisions(config.Decisions{File: file, FileSize: 1 << 20, FileKeep: 2}, false)
	l, ok := out.(*LineFile)
	if !ok {
		t.Fatalf("%T writes records", out)
	}
	open := l.Open
	l.Open = func() (io.WriteCloser, error) {
		out, err := open()
		return fullOnce{out, &writes}, err
	}
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

// A device is written to and never put aside: a file would come in its place.
func TestDecisionsLeaveADeviceAlone(t *testing.T) {
	cfg := config.Decisions{File: "/dev/null", FileSize: 1 << 20, FileKeep: 1}
	device, err := writable(cfg.File)
	if err != nil || !device {
		t.Fatalf("device %v, %v", device, err)
	}
	out := OpenDecisions(cfg, device)
	if _, ours := out.(*deviceWriter); !ours {
		t.Fatalf("a %T would rename the device", out)
	}
	for range 5 {
		if _, err := out.Write(make([]byte, 1<<19)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(cfg.File); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("%v, %v", info, err)
	}
	for name, want := range map[string]*os.File{
		"/dev/stdout": os.Stdout, "/proc/self/fd/2": os.Stderr, "/dev/null": nil, "stdout": nil,
	} {
		if got := standardStream(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
