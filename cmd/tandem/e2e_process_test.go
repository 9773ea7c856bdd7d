//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The end-to-end tests run the built binary: real processes, real sockets, real ZMQ. They are skipped with
// -short.

// built is the binary under test. It has the race detector if the tests have it, and a process that found
// a race fails its test.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tandem-e2e-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-buildvcs=false", "-o", filepath.Join(dir, "under-test")}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// madeBinary is true if a binary must be removed.
var madeBinary atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if madeBinary.Load() {
		dir, _ := built()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// binary builds the binary for the first test that needs it.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs processes for seconds")
	}
	madeBinary.Store(true)
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "under-test")
}

// process is one run of the binary. It is killed at the end of the test.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	out    output // standard output and standard error in their order of arrival
	exited chan struct{}
	err    error // result of Wait, valid once exited is closed
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startCommand(t, name, exec.Command(binary(t), args...))
}

// startWithFiles starts the binary with a limit of open files.
func startWithFiles(t *testing.T, name string, files int, args ...string) *process {
	t.Helper()
	limited := []string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), binary(t)}
	return startCommand(t, name, exec.Command("sh", append(limited, args...)...))
}

func startCommand(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.end)
	return p
}

// end kills the process and checks its output.
func (p *process) end() {
	p.kill()
	said := p.out.String()
	if strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") ||
		strings.Contains(said, "fatal error:") {
		p.t.Errorf("%s broke:\n%s", p.name, tail(said, 200))
	} else if p.t.Failed() {
		p.t.Logf("%s said at the end:\n%s", p.name, tail(said, 40))
	}
}

// kill sends SIGKILL and waits until the process has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(s) // the process may have just ended
	}
}

// exit waits until the process ends and returns its exit code.
func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.t.Fatalf("%s did not end within %v", p.name, within)
	}
	if status, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return status.ExitCode()
	}
	return 0
}

// line waits for a line that begins with prefix.
func (p *process) line(prefix string) string {
	p.t.Helper()
	var found string
	eventually(p.t, 20*time.Second, func() error {
		select {
		case <-p.exited:
			p.t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.out.String())
		default:
		}
		said := p.out.String()
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, "\n") {
				found = strings.TrimSpace(line)
				return nil
			}
		}
		return fmt.Errorf("%s has not said %q but\n%s", p.name, prefix, said)
	})
	return found
}

// output is a buffer that can be read while a process writes to it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// eventually polls until try returns nil, and returns the time that this took.
func eventually(t *testing.T, within time.Duration, try func() error) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		took := time.Since(began)
		if err == nil {
			return took
		}
		if took > within {
			t.Fatalf("not within %v: %v", within, err)
		}
		<-tick.C
	}
}

// untilOK polls a page until the status is 200.
func untilOK(t *testing.T, client *http.Client, page string, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		resp, err := client.Get(page)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", page, resp.StatusCode)
		}
		return nil
	})
}
