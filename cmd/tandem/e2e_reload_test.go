//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Changes of the configuration, made in any way, do not touch the running streams. New requests follow the
// newest valid file.
func TestReloadWhileStreamsRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast, spare: 1})
	streams := f.longStreams(6)
	l := f.traffic(2, 8)

	f.write(f.yaml(f.prefill[:2], f.decode[:2]) + "scoring: {beta: 2.5}\n")
	f.inForce("beta: 2.5")

	f.swap(f.yaml(f.prefill, f.decode) + "scoring: {beta: 2.5}\n") // p2 and d2 join
	f.ready(f.prefill, f.decode)
	f.used(f.prefill[2])
	f.used(f.decode[2])

	f.write(f.yaml(f.prefill[1:], f.decode[1:])) // p0 and d0 leave while they run streams
	f.hangUp()
	f.ready(f.prefill[1:], f.decode[1:])
	f.inForce("beta: 1.0")
	f.unused(f.prefill[0])

	f.rejects(func(text string) { f.write(text) })
	f.rejects(func(text string) { f.swap(text) })
	f.write(f.yaml(f.prefill[:2], f.decode[1:]))
	f.ready(f.prefill[:2], f.decode[1:])
	f.accepted()

	f.noClientNoticed(streams, l)
}

// SIGHUP and POST /-/reload read the file at once, even if the system reports no change.
func TestReloadOnDemand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	streams := f.longStreams(3)
	good := f.yaml(f.prefill[:2], f.decode[:2]) + "scoring: {beta: 1.5}\n"
	f.write(good)
	f.inForce("beta: 1.5")

	f.edit("beta: 1.5", "beta: 2.5")
	f.hangUp()
	f.inForce("beta: 2.5")

	f.edit("beta: 2.5", "beta: 3.5")
	if status, said := f.post("/-/reload"); status != http.StatusOK {
		t.Errorf("reload: %d %s", status, said)
	}
	f.inForceNow("beta: 3.5")

	f.edit("beta: 3.5", "beat: 3.5")
	status, said := f.post("/-/reload")
	if status != http.StatusBadRequest || !strings.Contains(said, "beat") ||
		!strings.Contains(said, `did you mean`) {
		t.Errorf("reload of a bad file: %d %s", status, said)
	}
	f.inForceNow("beta: 3.5")
	f.refused("beat")
	f.edit("beat: 3.5", "beta: 4.5")
	f.hangUp()
	f.inForce("beta: 4.5")
	f.accepted()
	f.hurry(streams)
	f.quiet(2 * time.Second)
}

// longStreams returns streams that have begun and do not end before hurry.
func (f *fleet) longStreams(n int) []*running {
	f.t.Helper()
	f.pace(10)
	w := newWriter(77)
	var out []*running
	for range n {
		s := f.begin(w.completion(w.text(), 1000).streamed())
		s.flowing(2)
		out = append(out, s)
	}
	return out
}

// pace slows all decode engines down; 1 makes them fast again.
func (f *fleet) pace(factor float64) {
	f.t.Helper()
	for _, e := range f.decode {
		e.slow(factor)
	}
}

// noClientNoticed ends the long streams and the traffic. It requires exact streams, no failed request, no
// resource still in use, and right answers.
func (f *fleet) noClientNoticed(streams []*running, l *traffic) {
	f.t.Helper()
	f.hurry(streams)
	l.end()
	if len(l.errors) > 0 {
		f.t.Errorf("requests failed meanwhile: %v", l.errors)
	}
	f.quiet(2 * time.Second)
	f.audit(l.asked)
}

// hurry lets long streams end, and requires exact streams.
func (f *fleet) hurry(streams []*running) {
	f.t.Helper()
	for _, s := range streams {
		select {
		case <-s.done:
			f.t.Error("a stream ended before the reloads were complete")
		default:
		}
	}
	f.pace(1)
	for _, s := range streams {
		if v, why := s.judge(); v != exact {
			f.t.Error(why)
		}
	}
}

// write changes the file in place.
func (f *fleet) write(text string) {
	f.t.Helper()
	f.must(os.WriteFile(f.file(), []byte(text), 0o600))
}

// swap changes the file as the kubelet does: it makes a new folder and renames a link over ..data.
func (f *fleet) swap(text string) {
	f.t.Helper()
	dir, err := os.MkdirTemp(f.dir, "..")
	f.must(err)
	f.must(os.WriteFile(filepath.Join(dir, "tandem.yaml"), []byte(text), 0o600))
	f.must(os.Symlink(filepath.Base(dir), filepath.Join(f.dir, "..data_tmp")))
	f.must(os.Rename(filepath.Join(f.dir, "..data_tmp"), filepath.Join(f.dir, "..data")))
}

// edit changes the file through a memory map, and inotify does not report such a change. Both texts have
// the same length.
func (f *fleet) edit(from, to string) {
	f.t.Helper()
	file, err := os.OpenFile(f.file(), os.O_RDWR, 0)
	f.must(err)
	defer file.Close()
	info, err := file.Stat()
	f.must(err)
	text, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	f.must(err)
	i := strings.Index(string(text), from)
	if i < 0 || len(from) != len(to) {
		f.t.Fatalf("cannot make %q of %q in\n%s", to, from, text)
	}
	copy(text[i:], to)
	f.must(syscall.Munmap(text))
}

func (f *fleet) hangUp() { f.router.signal(syscall.SIGHUP) }

func (f *fleet) post(path string) (status int, said string) {
	f.t.Helper()
	resp, err := f.asker.Post(f.admin+path, "", nil)
	f.must(err)
	defer resp.Body.Close()
	var body map[string]string
	f.must(json.NewDecoder(resp.Body).Decode(&body))
	return resp.StatusCode, fmt.Sprint(body)
}

// inForce waits until the line is in the configuration in force.
func (f *fleet) inForce(line string) {
	f.t.Helper()
	eventually(f.t, patience(3*time.Second), func() error {
		if text := f.text("/-/config"); !strings.Contains(text, line+"\n") {
			return fmt.Errorf("%q is not in force", line)
		}
		return nil
	})
}

func (f *fleet) inForceNow(line string) {
	f.t.Helper()
	if text := f.text("/-/config"); !strings.Contains(text, line+"\n") {
		f.t.Errorf("%q is not in force in\n%s", line, text)
	}
}

// rejects gives the router a bad file with put. Nothing changes, and the log, the metric and /readyz state
// the mistake, its place and the remedy.
func (f *fleet) rejects(put func(string)) {
	f.t.Helper()
	before := f.text("/-/config")
	bad := strings.Replace(f.yaml(f.prefill[:1], f.decode[:1]), "local: never", "local: sometimes", 1)
	put(bad + "scoring: {beta: -1}\n")
	f.refused("local: \"sometimes\" is not known", "auto, never, always", "scoring.beta: is -1",
		"choose a number from 0 up")
	if f.text("/-/config") != before {
		f.t.Error("the configuration in force has changed")
	}
	w := newWriter(5)
	f.check(w.next(4))
	put(strings.Replace(bad, "sometimes", "never", 1)[:40]) // half a file
	f.refused("tandem.yaml:2:8: ")
}

// refused waits until the log, the metric and /readyz report a bad file, with these words.
func (f *fleet) refused(words ...string) {
	f.t.Helper()
	eventually(f.t, patience(3*time.Second), func() error {
		status, h := f.health()
		switch {
		case status != http.StatusOK:
			f.t.Fatalf("not ready with the old configuration: %+v", h)
		case h.Config == nil:
			return fmt.Errorf("/readyz does not know of a bad file")
		case !all(h.Config.Error, words) || !strings.Contains(h.Config.Error, "tandem.yaml:"):
			return fmt.Errorf("/readyz says %q", h.Config.Error)
		case f.metric("tandem_config_last_reload_successful") != 0:
			return fmt.Errorf("the metric says that the file was good")
		case !strings.Contains(f.router.out.String(), "configuration rejected, the old one stays in force"):
			return fmt.Errorf("the log does not know")
		}
		return nil
	})
}

func (f *fleet) accepted() {
	f.t.Helper()
	eventually(f.t, patience(3*time.Second), func() error {
		if _, h := f.health(); h.Config != nil || f.metric("tandem_config_last_reload_successful") != 1 {
			return fmt.Errorf("the good file is not known: %+v", h.Config)
		}
		return nil
	})
}

// used sends requests until the engine has computed a prompt or an answer.
func (f *fleet) used(e *engine) {
	f.t.Helper()
	w := newWriter(1000)
	eventually(f.t, patience(10*time.Second), func() error {
		var wg sync.WaitGroup
		for range 4 {
			q := w.completion(w.ids(40), 2)
			wg.Go(func() { f.check(q) })
		}
		wg.Wait()
		if f.series(e.url+"/metrics", "vllm:prompt_tokens_total") == 0 {
			return fmt.Errorf("%s is not used", e.id)
		}
		return nil
	})
}

// unused sends a request and requires that another engine computes it.
func (f *fleet) unused(e *engine) {
	f.t.Helper()
	before := f.series(e.url+"/metrics", "vllm:prompt_tokens_total")
	w := newWriter(2000)
	for range 10 {
		f.check(w.next(2))
	}
	if n := f.series(e.url+"/metrics", "vllm:prompt_tokens_total") - before; n != 0 {
		f.t.Errorf("%s computed %v tokens after it had left the pool", e.id, n)
	}
}
