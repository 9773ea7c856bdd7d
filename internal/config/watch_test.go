package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// called holds what one call of the callback was given.
type called struct {
	listen string
	keys   int // the number of keys of the key file
	err    error
	asked  bool // the call is the result of a Reload
}

// watched is a watcher with the calls of its callback.
type watched struct {
	*Watcher
	calls chan called
}

// watch starts a watcher of path with short delays. A large poll leaves the detection of a change to events;
// a short poll does not need them.
func watch(t *testing.T, path string, poll time.Duration) *watched {
	t.Helper()
	return watchSlowly(t, path, 20*time.Millisecond, poll)
}

func watchSlowly(t *testing.T, path string, debounce, poll time.Duration) *watched {
	t.Helper()
	w := unstarted(path)
	w.debounce, w.poll = debounce, poll
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// unstarted makes a watcher of path that does not run. The test makes each look itself.
func unstarted(path string) *watched {
	w := &watched{calls: make(chan called, 100)}
	w.Watcher = NewWatcher(path, func(asked bool, c *Config, err error) {
		if err != nil {
			w.calls <- called{err: err, asked: asked}
			return
		}
		w.calls <- called{listen: c.Listen, keys: len(c.FileKeys), asked: asked}
	})
	return w
}

// waits makes n looks. After each of them the change must not be settled yet.
func (w *watched) waits(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if again := w.look(); !again || len(w.calls) > 0 {
			t.Fatalf("look %d of %d: got another look due %t, %d calls; want true, 0", i+1, n, again, len(w.calls))
		}
	}
}

// settles makes n looks and returns the call at the last look. The earlier looks must not settle the change.
func (w *watched) settles(t *testing.T, n int) called {
	t.Helper()
	w.waits(t, n-1)
	if again := w.look(); again || len(w.calls) != 1 {
		t.Fatalf("look %d: got another look due %t, %d calls; want false, 1", n, again, len(w.calls))
	}
	return <-w.calls
}

const never = time.Hour

func (w *watched) next(t *testing.T) called {
	t.Helper()
	select {
	case c := <-w.calls:
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("got no call within 10s, want one")
	}
	return called{}
}

func (w *watched) want(t *testing.T, listen string) {
	t.Helper()
	if got := w.next(t); got.err != nil || got.listen != listen || got.asked {
		t.Fatalf("got call %+v, want listen %q", got, listen)
	}
}

// quiet checks that the callback was not called yet. Reload waits for the loop, and finds no change.
func (w *watched) quiet(t *testing.T) {
	t.Helper()
	if changed, err := w.Reload(t.Context()); changed || err != nil {
		t.Errorf("got changed %v, %v from Reload; want false", changed, err)
	}
	select {
	case c := <-w.calls:
		t.Errorf("got call %+v, want none", c)
	default:
	}
}

func listening(addr string) string { return "listen: " + addr + "\n" }

func TestWatchSeesEachWayOfWriting(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(t *testing.T, path string)
	}{
		{"in place", func(t *testing.T, path string) { write(t, path, listening(":2")) }},
		{"renamed over", func(t *testing.T, path string) {
			write(t, path+".tmp", listening(":2"))
			rename(t, path+".tmp", path)
		}},
		{"moved away and written", func(t *testing.T, path string) {
			rename(t, path, path+"~")
			write(t, path, listening(":2"))
		}},
		{"deleted and recreated", func(t *testing.T, path string) {
			remove(t, path)
			write(t, path, listening(":2"))
		}},
		{"became a link", func(t *testing.T, path string) {
			write(t, path+".2", listening(":2"))
			remove(t, path)
			symlink(t, path+".2", path)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tandem.yaml")
			write(t, path, listening(":1"))
			w := watch(t, path, never)
			w.quiet(t) // afterwards the watcher watches the folder
			row.change(t, path)
			for {
				got := w.next(t)
				if got.listen == ":2" {
					break
				}
				// The watcher may have read the file between the two steps. Then it reports an error, no configuration.
				if got.err == nil {
					t.Fatalf("got call %+v, want the new configuration or an error", got)
				}
			}
			w.quiet(t)
		})
	}
}

// A ConfigMap is mounted as tandem.yaml -> ..data/tandem.yaml and ..data -> ..1. An update renames a new link
// to ..data.
func TestWatchSeesTheSwapOfAConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "tandem.yaml"), text)
	}
	version("..1", listening(":1"))
	symlink(t, "..1", filepath.Join(dir, "..data"))
	path := filepath.Join(dir, "tandem.yaml")
	symlink(t, filepath.Join("..data", "tandem.yaml"), path)
	w := watch(t, path, never)
	w.quiet(t)

	for _, next := range []string{"2", "3"} {
		version(".."+next, listening(":"+next))
		symlink(t, ".."+next, filepath.Join(dir, "..data_tmp"))
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		w.want(t, ":"+next)
	}
	w.quiet(t)
}

// A link points to a file in another folder. A program writes this file in place.
func TestWatchSeesTheTargetOfALink(t *testing.T) {
	target, path := filepath.Join(t.TempDir(), "real.yaml"), filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, target, listening(":1"))
	symlink(t, target, path)
	w := watch(t, path, never)
	w.quiet(t)
	write(t, target, listening(":2"))
	w.want(t, ":2")
}

func TestWatchSeesASecretTurn(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	path, key := filepath.Join(dir, "tandem.yaml"), filepath.Join(other, "key")
	write(t, key, "one")
	write(t, path, "listen: :1\napi_keys: [{file: "+key+"}]\n")
	w := watch(t, path, never)
	w.quiet(t)
	write(t, key, "two")
	w.want(t, ":1")
}

func TestWatchPollsWhereNoEventComes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "tandem.yaml")
	w := watch(t, path, 5*time.Millisecond) // the folder does not exist yet: only polling can find the file
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, listening(":2"))
	w.want(t, ":2")
}

func TestUnchangedIsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, listening(":1"))
	w := watch(t, path, never)
	w.quiet(t)
	write(t, path, listening(":1"))
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.quiet(t)
	write(t, path, listening(":2")) // checks that the watcher still runs
	w.want(t, ":2")
}

func TestABadFileIsToldOnceAndThenPutRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, listening(":1"))
	w := watch(t, path, never)
	w.quiet(t)

	write(t, path, "listne: :2\n")
	if got := w.next(t); got.err == nil {
		t.Fatalf("got call %+v, want an error", got)
	}
	if changed, err := w.Reload(t.Context()); changed || err == nil {
		t.Errorf("got changed %v, %v from Reload of the same bad file; want false and an error", changed, err)
	}
	write(t, path, listening(":1"))
	w.want(t, ":1") // the old content again ends the error
}

func TestReloadDoesNotWaitToSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, listening(":1"))
	w := watchSlowly(t, path, never, never)
	write(t, path, listening(":2"))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	if got := w.next(t); got.listen != ":2" || !got.asked {
		t.Errorf("got call %+v, want listen :2 as the result of Reload", got)
	}
}

func TestReloadEndsWithItsContext(t *testing.T) {
	w := NewWatcher(filepath.Join(t.TempDir(), "none"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Reload(ctx); err == nil { // the watcher does not run
		t.Error("got no error, want one")
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// A program that writes a file in place may pause after it has emptied the file. The watcher then keeps the
// configuration in force, and reports an error only if the file stays empty.
func TestAFileThatIsEmptyForAMomentIsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, listening(":1"))
	w := unstarted(path)
	write(t, path, "")
	w.waits(t, 1+blankLooks)
	write(t, path, listening(":2"))
	if got := w.settles(t, 2); got.err != nil || got.listen != ":2" {
		t.Fatalf("got call %+v, want listen :2", got)
	}
	write(t, path, " \n")
	if got := w.settles(t, 2+blankLooks); got.err == nil || !strings.Contains(got.err.Error(), "is empty") {
		t.Errorf("got call %+v for a file that stays empty, want an error", got)
	}
	write(t, path, listening(":3"))
	if got := w.settles(t, 2); got.err != nil || got.listen != ":3" {
		t.Fatalf("got call %+v, want listen :3", got)
	}
}

// A key file that is written in place is empty for a moment. The watcher keeps its keys meanwhile, also if
// api_keys has a key. It removes them if the file stays empty.
func TestAKeyFileThatIsEmptyForAMomentKeepsItsKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	keys := filepath.Join(filepath.Dir(path), "keys")
	line, err := KeyLine(Key{Name: "a", SHA256: strings.Repeat("5a", 32)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, keys, line+"\n")
	write(t, path, listening(":1")+"keys_file: keys\napi_keys: [{value: k}]\n")
	w := unstarted(path)
	write(t, keys, "")
	w.waits(t, 1+blankLooks)
	write(t, keys, strings.Replace(line, "5a", "5b", 1)+"\n")
	if got := w.settles(t, 2); got.err != nil || got.keys != 1 {
		t.Fatalf("got call %+v, want the configuration with the new key", got)
	}
	write(t, keys, "\n")
	if got := w.settles(t, 2+blankLooks); got.err != nil || got.keys != 0 {
		t.Errorf("got call %+v, want the configuration without the keys of the file", got)
	}
}

// A file that is written in place is empty for a moment. An empty file is an error, no empty configuration.
func TestAnEmptyFileIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tandem.yaml")
	for _, text := range []string{"", "\n", " \n\t"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Load(file); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%q: got %+v, %v; want an error that the file is empty", text, c, err)
		}
	}
}
