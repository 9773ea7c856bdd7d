package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/liveness"
)

// filling is a file on a disk that takes so many bytes more.
type filling struct {
	io.WriteCloser
	left *int
}

func (f filling) Write(p []byte) (int, error) {
	if len(p) <= *f.left {
		*f.left -= len(p)
		return f.WriteCloser.Write(p)
	}
	n, err := f.WriteCloser.Write(p[:*f.left])
	*f.left = 0
	return n, errors.Join(err, syscall.ENOSPC)
}

// usageLines are the lines of a file of usage; each must be whole.
func usageLines(t *testing.T, file string) (lines []UsageLine) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l UsageLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%v: %q", err, line)
		}
		lines = append(lines, l)
	}
	return lines
}

// Wherever a disk gets full, each key's use is in the file once when the disk has room again, and the file
// has whole lines.
func TestUsageOnAFullDiskIsWrittenOnce(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for room := range 400 {
		file, left := filepath.Join(t.TempDir(), "usage.jsonl"), room
		u := usageFile{
			log: quiet, used: new(keys.Usage), name: func() string { return file },
			disk: liveness.Disk{Log: quiet, Stalled: prometheus.NewGauge(prometheus.GaugeOpts{})},
			open: func(name string) (io.WriteCloser, error) {
				f, err := openUsage(name)
				return filling{f, &left}, err
			},
		}
		for i := range 3 {
			u.used.Add(keys.Used{Key: fmt.Sprint("team-", i), Model: "m", Requests: 1, Prompt: 10})
		}
		err := u.write(t.Context(), time.Now())
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("room for %d bytes gives %v", room, err)
		}
		u.used.Add(keys.Used{Key: "team-0", Model: "m", Requests: 1, Prompt: 1})
		if left = 1 << 20; u.write(t.Context(), time.Now()) != nil {
			t.Fatal("the disk has room, and nothing is written")
		}
		sum := map[string]int64{}
		for _, l := range usageLines(t, file) {
			sum[l.Key] += l.Prompt
		}
		if len(sum) != 3 || sum["team-0"] != 11 || sum["team-1"] != 10 || sum["team-2"] != 10 {
			t.Fatalf("room for %d bytes: the file has %v", room, sum)
		}
	}
}

// What a crash left of a line is cut off before the next line comes.
func TestUsageAfterACrash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	u := usageFile{open: openUsage}
	line := `{"from":"2026-01-02T03:04:05Z","to":"2026-01-02T04:00:00Z","key":"a","model":"m"}` + "\n"
	for n := range len(line) {
		if err := os.WriteFile(file, []byte(line+line[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := u.appendTo(file, []byte(line)); err != nil || len(usageLines(t, file)) != 2 {
			t.Fatalf("%v after %d bytes of a line", err, n)
		}
	}
}
