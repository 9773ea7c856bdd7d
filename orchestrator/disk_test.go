package orchestrator

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// frozen is a disk on which every call hangs until it is unfrozen.
type frozen struct {
	unfreeze chan struct{}
	mu       sync.Mutex // guards the following
	calls    int
}

func (f *frozen) call() {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	<-f.unfreeze
}

// frozenFile is a file on a frozen disk.
type frozenFile struct{ *frozen }

func (f frozenFile) Write(p []byte) (int, error) { f.call(); return len(p), nil }
func (f frozenFile) Close() error                { f.call(); return nil }

// onFrozen runs story in a world with a frozen disk, ends the router, and checks that it ends in time.
func onFrozen(t *testing.T, s setup, story func(w *world, disk *frozen)) {
	synctest.Test(t, func(t *testing.T) {
		disk := &frozen{unfreeze: make(chan struct{})}
		options := s.options
		s.options = func(o *Options) {
			o.replaceState = func(string, []byte) error { disk.call(); return nil }
			o.openDecisions = func(cfg config.Decisions, device bool) io.WriteCloser {
				if strings.HasPrefix(filepath.Base(cfg.File), "frozen") {
					return frozenFile{disk}
				}
				return observe.OpenDecisions(cfg, device)
			}
			if options != nil {
				options(o)
			}
		}
		w := newWorld(t, s)
		story(w, disk)
		w.settled()
		began := time.Now()
		w.close()
		if took := time.Since(began); took > liveness.LastWrite+time.Second {
			t.Errorf("the router ended after %v", took)
		}
		close(disk.unfreeze)
		synctest.Wait()
	})
}

const notWritten, answersAgain = "its disk does not answer", "the disk of a file answers again"

// While the disk of state.file hangs, replicas come and go, the status is shown and reloads work. The
// trouble is logged once, and the router ends in time.
func TestTheStatesDiskStandsStill(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	var log bytes.Buffer
	onFrozen(t, setup{
		config:  func(c *config.Config) { c.State = config.State{File: name, Interval: time.Second} },
		options: logsTo(&log),
	}, func(w *world, disk *frozen) {
		time.Sleep(5 * time.Second)
		if disk.calls != 1 {
			t.Fatalf("%d writes are in progress, want 1", disk.calls)
		}
		cfg := *w.cfg
		cfg.Pools.Decode.Replicas = cfg.Pools.Decode.Replicas[:1]
		if err := w.o.Apply(&cfg); err != nil {
			t.Errorf("reload in which a replica leaves: %v", err)
		}
		if err := w.o.Apply(w.cfg); err != nil {
			t.Errorf("reload in which a replica returns: %v", err)
		}
		time.Sleep(time.Minute)
		if n := w.count("tandem_file_stalled", "state.file"); n != 1 {
			t.Errorf("tandem_file_stalled is %d, want 1", n)
		}
		if got := w.get("admin", "/debug/replicas"); got.status != 200 ||
			strings.Count(got.raw, `"healthy": true`) != 4 {
			t.Errorf("/debug/replicas: %d %s", got.status, got.raw)
		}
		w.exact(chat(true), w.ask(chat(true)))
		if n := strings.Count(log.String(), notWritten); n != 1 ||
			!strings.Contains(log.String(), "field=state.file") {
			t.Errorf("the trouble is logged %d times, want once with its field: %s", n, log.String())
		}
	})
}

// A disk that answers again is used again, without a restart.
func TestTheStatesDiskAnswersAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	var log bytes.Buffer
	unfreeze := make(chan struct{})
	in(t, setup{
		config: func(c *config.Config) { c.State = config.State{File: name, Interval: time.Second} },
		options: func(o *Options) {
			unfreeze = make(chan struct{}) // made here, within the fake time of the test
			logsTo(&log)(o)
			o.replaceState = func(name string, data []byte) error { <-unfreeze; return replaceFile(name, data) }
		},
	}, func(w *world) {
		time.Sleep(time.Minute)
		close(unfreeze)
		time.Sleep(5 * time.Second)
		if n := w.count("tandem_file_stalled", "state.file"); n != 0 {
			t.Errorf("tandem_file_stalled is %d, want 0", n)
		}
		if n := strings.Count(log.String(), answersAgain); n != 1 {
			t.Errorf("the end of the trouble is logged %d times, want once: %s", n, log.String())
		}
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	})
}

// If state.file changes while the disk of the former file hangs, the new file is written at once.
func TestAnotherStateFileInstead(t *testing.T) {
	folder := t.TempDir()
	second := filepath.Join(folder, "second.json")
	var disk *frozen
	onFrozen(t, setup{
		config: func(c *config.Config) {
			c.State = config.State{File: filepath.Join(folder, "frozen.json"), Interval: time.Second}
		},
		options: func(o *Options) {
			o.replaceState = func(name string, data []byte) error {
				if name != second {
					disk.call()
				}
				return replaceFile(name, data)
			}
		},
	}, func(w *world, d *frozen) {
		disk = d
		time.Sleep(time.Minute)
		cfg := *w.cfg
		cfg.State.File = second
		if err := w.o.Apply(&cfg); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := os.Stat(second); err != nil {
			t.Error(err)
		}
	})
}

// While the disk of decisions.file hangs, requests are answered and reloads work. Lost records are
// counted, and the router ends in time. Another file is written at once.
func TestTheDecisionsDiskStandsStill(t *testing.T) {
	for name, instead := range map[string]string{
		"to the end":                  "",
		"until another file is named": "second.jsonl",
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			var log bytes.Buffer
			onFrozen(t, setup{
				config:  func(c *config.Config) { c.Decisions.File = filepath.Join(folder, "frozen.jsonl") },
				options: logsTo(&log),
			}, func(w *world, _ *frozen) {
				for range 3 {
					w.exact(chat(true), w.ask(chat(true)))
				}
				time.Sleep(time.Minute)
				if n := w.count("tandem_file_stalled", "decisions.file"); n != 1 {
					t.Errorf("tandem_file_stalled is %d, want 1", n)
				}
				if n := strings.Count(log.String(), notWritten); n != 1 {
					t.Errorf("the trouble is logged %d times, want once: %s", n, log.String())
				}
				cfg := *w.cfg
				cfg.Limits.Samples = 7
				if instead != "" {
					cfg.Decisions.File = filepath.Join(folder, instead)
				}
				if err := w.o.Apply(&cfg); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				w.exact(chat(true), w.ask(chat(true)))
				time.Sleep(time.Second)
				if instead == "" {
					return
				}
				if got := recordsIn(t, cfg.Decisions.File); len(got) != 3 { // all but the record in the hanging write
					t.Errorf("the second file has %d records, want 3", len(got))
				}
				if n := w.count("tandem_file_stalled", "decisions.file"); n != 0 {
					t.Errorf("tandem_file_stalled is %d, want 0", n)
				}
			})
			if instead == "" && !strings.Contains(log.String(), "records are dropped until writing works") {
				t.Errorf("the log does not say that records are lost: %s", log.String())
			}
		})
	}
}

// A pipe without a reader is refused at once, with the name of the field. After that another file is
// accepted.
func TestDecisionsRefuseAPipe(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	in(t, setup{}, func(w *world) {
		for name, says := range map[string]string{pipe: "is a pipe", folder: "is no file"} {
			cfg := *w.cfg
			cfg.Decisions.File = name
			err := w.o.Apply(&cfg)
			if err == nil || !strings.Contains(err.Error(), "decisions.file: ") ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		cfg := *w.cfg
		cfg.Decisions.File = filepath.Join(folder, "file.jsonl")
		if err := w.o.Apply(&cfg); err != nil {
			t.Error(err)
		}
		w.ask(chat(true))
		time.Sleep(time.Second)
		if got := recordsIn(t, cfg.Decisions.File); len(got) != 1 {
			t.Errorf("the file has %d records, want 1", len(got))
		}
	})
}
