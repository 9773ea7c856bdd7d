package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

// process is a program in its own process group. The group's id is the program's.
type process struct {
	name  string
	log   string // file of its output
	pid   int
	ended chan struct{}
	state string // how it ended, after ended
	left  bool   // no process of the group was left: another process may have its id now
}

func startProcess(name, work string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(work, name+".log"), ended: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = work
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	started.add(p.pid)
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState.String()
		close(p.ended)
	}()
	return p, nil
}

// adoptProcess returns a process that another run has started.
func adoptProcess(name, log string, pid int) *process {
	p := &process{name: name, log: log, pid: pid, ended: make(chan struct{})}
	gone := func() bool { return syscall.Kill(pid, 0) != nil }
	p.state = "gone"
	if gone() { // close now, so that the new owner can start it again
		close(p.ended)
		return p
	}
	started.add(pid)
	go func() {
		for !gone() {
			time.Sleep(50 * time.Millisecond)
		}
		close(p.ended)
	}()
	return p
}

// signal sends sig to every process of the group.
func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.pid, sig) }

func (p *process) logTail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(pinned.LastLines(b, lines))
}

// cause is the first error that the log names: the last lines of vLLM's processes only report the failure of
// another process.
func (p *process) cause() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(errorLine.Find(b)))
}

var errorLine = regexp.MustCompile(`(?m)^.*\b[A-Z]\w*Error: .*$`)

// stop ends all the groups. It asks them first, and kills them after grace; without grace it kills them at
// once. It returns when no process is left. It removes the shared memory that the killed processes had
// mapped.
func stop(processes []*process, grace time.Duration) error {
	processes = slices.DeleteFunc(slices.Clone(processes), func(p *process) bool { return p.left })
	var memory []string
	for _, p := range processes {
		memory = append(memory, sharedMemory(p.pid)...)
		if grace > 0 {
			p.signal(syscall.SIGCONT)
			p.signal(syscall.SIGTERM)
		}
	}
	deadline := time.Now().Add(grace)
	var errs []error
	for _, p := range processes {
		if (grace <= 0 || !gone(p, time.Until(deadline))) && !slay(p) {
			errs = append(errs, fmt.Errorf("processes of %s (group %d) are left after SIGKILL", p.name,
				p.pid))
		}
	}
	for _, file := range memory {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// gone waits until the group has no process, for limit at most.
func gone(p *process, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		if errors.Is(syscall.Kill(-p.pid, 0), syscall.ESRCH) {
			<-p.ended
			started.remove(p.pid)
			p.left = true
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// slay kills the group and reports whether it is gone. Python's resource tracker outlives the others for a
// moment. Only the tracker knows the names of semaphores in /dev/shm. It removes them when no other process
// is left.
func slay(p *process) bool {
	for _, m := range members(p.pid) {
		if line, _ := os.ReadFile(filepath.Join(m.dir, "cmdline")); !bytes.Contains(line,
			[]byte("resource_tracker")) {
			_ = syscall.Kill(m.pid, syscall.SIGKILL)
		}
	}
	p.signal(syscall.SIGCONT)
	if gone(p, 3*time.Second) {
		return true
	}
	p.signal(syscall.SIGKILL)
	return gone(p, time.Minute) // busy machines take long to free their memory
}

// member is a process of a group, and its folder in /proc.
type member struct {
	pid int
	dir string
}

func members(group int) []member { return membersOf(map[int]bool{group: true}) }

// membersOf returns the members of the groups at one moment.
func membersOf(groups map[int]bool) (all []member) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if g, err := syscall.Getpgid(pid); err == nil && groups[g] {
			all = append(all, member{pid, dir})
		}
	}
	return all
}

// sharedMemory lists the files of /dev/shm that processes of the group have mapped.
func sharedMemory(group int) []string {
	seen := map[string]bool{}
	var files []string
	for _, m := range members(group) {
		maps, _ := os.ReadFile(filepath.Join(m.dir, "maps"))
		for line := range strings.Lines(string(maps)) {
			at := strings.Index(line, "/dev/shm/")
			if at < 0 {
				continue
			}
			if file := strings.TrimSpace(line[at:]); !seen[file] && !strings.HasSuffix(file, " (deleted)") {
				seen[file] = true
				files = append(files, file)
			}
		}
	}
	return files
}
