package orchestrator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A state file that is cut short, invalid or of another version is refused with a reason. It neither ends
// the process nor is used in part.
func TestBadStateIsNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"cut short":       `{"tandem_state":1,"learned":{"lengths":[{"mod`,
		"another version": `{"tandem_state":2,"learned":{}}`,
		"no version":      `{"learned":{}}`,
		"another type":    `{"tandem_state":1,"learned":{"speeds":7}}`,
		"no object":       `[1]`,
	} {
		if l, err := readState(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, l)
		}
	}
	if _, err := readState(strings.NewReader(strings.Repeat(" ", maxState+1))); err == nil {
		t.Error("a file that is too large was accepted")
	}
	if _, err := readState(strings.NewReader(`{"tandem_state":1,"added_later":1,"learned":{}}`)); err != nil {
		t.Errorf("an unknown field: %v", err)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"tandem_state":1,"learned":{"at":"1970-01-01T00:00:00Z","lengths":[` +
		`{"of":"class","model":"m","tenant":7,"ended":[1],"tokens":[1],"beyond":[0],"events":1}]}}`))
	f.Add([]byte(`{"tandem_state":1,"learned":{"speeds":[` +
		`{"engine":{"url":"u"},"prefill":{"factors":[1,1,1]}}]}}`))
	f.Add([]byte(`{"tandem_state":1,"distrusted":[{"started":5,"era":1,"seen":1},` +
		`{"url":"u","era":4000000000}]}`))
	f.Add([]byte(`{"tandem_state":1,"found":{"at":"1970-01-01T00:00:00Z","answers":[{"Source":"dns",` +
		`"Name":"http://d:1","Pool":"decode","Replicas":[{"Name":"a b","URL":"http://10.0.0.1:1"}]},` +
		`{"Source":"dns","Name":"http://r:1","Pool":"routers","Replicas":[{"URL":"::"}]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := readState(bytes.NewReader(data))
		if err != nil {
			return
		}
		cfg := config.Default()
		cfg.Discovery.DNS.Decode = []config.Replica{{URL: "http://d:1"}}
		cfg.Discovery.DNS.Routers = []string{"http://r:1"}
		o, err := New(cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1, 0)
		o.fleet.HearDistrust(l.Distrusted)
		o.planner.RestoreLengths(&l.Learned, now)
		o.planner.RestoreReplicas(&l.Learned, now)
		if l.Found != nil { // answers count only for the router's own questions
			l.Found.Discovery = cfg.Discovery
		}
		o.sources.Remember(l.Found, now)
		if err := o.rejoin(); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(o.planner.Learned(now)); err != nil {
			t.Error(err)
		}
	})
}

// The next router starts with what the former one has learned: lengths at once, speeds when the replicas
// have joined. The file is written at the end, only its owner can read it, and it has neither prompts nor
// keys.
func TestWhatWasLearnedOutlivesTheRouter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	keeping := setup{config: func(c *config.Config) {
		c.State.File = name
		c.APIKeys = []config.Secret{{Value: "a-key-that-nobody-reads"}}
	}}
	in(t, keeping, func(w *world) {
		for range 5 {
			w.askWithKey()
		}
	})
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"a-key", "Be brief", "word"} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("the file contains %q", secret)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v, want 0600", info.Mode(), err)
	}
	first, err := readState(bytes.NewReader(data))
	if err != nil || len(first.Learned.Lengths) < 5 || len(first.Learned.Speeds) == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	in(t, keeping, func(w *world) {
		second := w.o.planner.Learned(time.Now())
		if len(second.Lengths) != len(first.Learned.Lengths) {
			t.Errorf("%d groups were stored, the next router has %d", len(first.Learned.Lengths),
				len(second.Lengths))
		}
		if len(second.Speeds) != len(first.Learned.Speeds) {
			t.Errorf("the speeds of %d replicas were stored, the next router has %d", len(first.Learned.Speeds),
				len(second.Speeds))
		}
		w.askWithKey()
	})
}

// askWithKey sends a request with the key of [TestWhatWasLearnedOutlivesTheRouter].
func (w *world) askWithKey() {
	p := chat(true)
	p.header = map[string][]string{"Authorization": {"Bearer a-key-that-nobody-reads"}}
	w.exact(p, w.ask(p))
}

// Whatever is in the place of the state file, the router starts, logs one line and serves. Later it writes
// its own state there, if possible.
func TestAStateThatCannotBeReadCostsALine(t *testing.T) {
	old, err := json.Marshal(keptState{
		Version: stateVersion, Learned: planner.Learned{At: time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(name string) error{
		"broken":  func(name string) error { return os.WriteFile(name, []byte("{"), 0o600) },
		"foreign": func(name string) error { return os.WriteFile(name, []byte(`{"version":3,"a":[]}`), 0o600) },
		"old":     func(name string) error { return os.WriteFile(name, old, 0o600) },
		"a folder": func(name string) error {
			return os.MkdirAll(filepath.Join(name, "with something in it"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state.json")
			if err := put(file); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			in(t, setup{
				config:  func(c *config.Config) { c.State.File = file },
				options: logsTo(&log),
			}, func(w *world) {
				p := chat(true)
				w.exact(p, w.ask(p))
			})
			if n := strings.Count(log.String(), "state file is ignored"); n != 1 {
				t.Errorf("the ignored file is logged %d times, want once: %s", n, log.String())
			}
			if name == "a folder" {
				return
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if l, err := readState(bytes.NewReader(data)); err != nil || len(l.Learned.Lengths) == 0 {
				t.Errorf("after the end of the router the file has %s, %v", data, err)
			}
		})
	}
}

// A device, a pipe or a link in the place of the state file is not replaced by a file. Through a link, the
// file that it points to is read and written.
func TestTheStateReplacesNothingButAFile(t *testing.T) {
	folder := t.TempDir()
	pipe, link := filepath.Join(folder, "pipe"), filepath.Join(folder, "link")
	behind := filepath.Join(folder, "a")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("a", link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, link, link} {
		var log bytes.Buffer
		in(t, setup{
			config: func(c *config.Config) { c.State.File = name }, options: logsTo(&log),
		}, func(w *world) {
			p := chat(true)
			w.exact(p, w.ask(p))
		})
		if n := strings.Count(log.String(), "state file was not written"); n > 1 || (n == 1) != (name == pipe) {
			t.Errorf("%s: the failed write is logged %d times: %s", name, n, log.String())
		}
	}
	for name, want := range map[string]fs.FileMode{pipe: fs.ModeNamedPipe, link: fs.ModeSymlink, behind: 0} {
		if info, err := os.Lstat(name); err != nil || info.Mode().Type() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	data, err := os.ReadFile(behind)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := readState(bytes.NewReader(data)); err != nil || len(l.Learned.Lengths) == 0 {
		t.Errorf("the link's target has %s, %v", data, err)
	}
	if rest, err := filepath.Glob(filepath.Join(folder, ".tandem-state-*")); err != nil || len(rest) > 0 {
		t.Errorf("temporary files are left: %v, %v", rest, err)
	}
}
