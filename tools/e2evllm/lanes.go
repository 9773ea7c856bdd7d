package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The acts wait for leases, for engines that start and for timeouts most of the time. So with -lanes two
// halves run side by side: the acts of the fleet "pools", and the acts of all other fleets. Each half has a
// process of its own: a lane. A lane has its own engines, ports, files and fair time, so that no act sees
// anything of the other lane.

// lane is one half of the acts.
type lane struct {
	name string
	acts []act
}

// lanesOf splits a program by fleet. It returns one lane where all acts belong to the same half.
func lanesOf(program []act) []lane {
	halves := []lane{{name: "pools"}, {name: "others"}}
	for _, a := range program {
		if a.fleet == pools {
			halves[0].acts = append(halves[0].acts, a)
		} else {
			halves[1].acts = append(halves[1].acts, a)
		}
	}
	var some []lane
	for _, l := range halves {
		if len(l.acts) > 0 {
			some = append(some, l)
		}
	}
	return some
}

// bytesOfLanes is the memory that must be available for two lanes: up to nine engines at once.
const bytesOfLanes = 20 << 30

// sideBySide reports whether the lanes of the program shall run at the same time.
func (o *options) sideBySide(lanes []lane) bool {
	alone := o.attach != "" || o.stay != "" || o.lane != ""
	return o.lanes && !alone && len(lanes) > 1 && (o.simulate || availableMemory() >= bytesOfLanes)
}

// availableMemory is what Linux says that new processes can have, in bytes, 0 where the system does not say.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return memoryIn(text)
}

func memoryIn(meminfo []byte) int64 {
	_, after, found := bytes.Cut(meminfo, []byte("MemAvailable:"))
	if !found {
		return 0
	}
	line, _, _ := bytes.Cut(after, []byte("\n"))
	kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(line)), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// playLanes plays every lane in a process of its own, all at the same time, and shows what each says.
func (o *options) playLanes(ctx context.Context, lanes []lane) error {
	errs := make([]error, len(lanes))
	said := &lines{to: os.Stdout}
	var all sync.WaitGroup
	for i, l := range lanes {
		all.Go(func() {
			if err := o.playLane(ctx, l, said); err != nil {
				errs[i] = fmt.Errorf("the acts of the lane %s: %w", l.name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// endLimit is how long a lane that was interrupted may take to end its engines.
const endLimit = 2 * time.Minute

func (o *options) playLane(ctx context.Context, l lane, said *lines) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, o.laneFlags(l)...)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = endLimit
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	child.Stderr = child.Stdout
	if err := child.Start(); err != nil {
		return err
	}
	said.copy(l.name, out)
	return child.Wait()
}

// laneFlags is the command line that plays one lane.
func (o *options) laneFlags(l lane) []string {
	flags := []string{
		"-tandem", o.tandem, "-cache", o.cache, "-requests", strconv.Itoa(o.requests),
		"-seed", strconv.FormatUint(o.seed, 10), "-only", l.names(), "-faults", o.faults,
		"-kills", strconv.Itoa(o.kills), "-sim=" + strconv.FormatBool(o.simulate), "-lane", l.name,
	}
	if o.keep != "" {
		flags = append(flags, "-keep", filepath.Join(o.keep, l.name))
	}
	return flags
}

// names are the lane's acts as -only takes them.
func (l lane) names() string {
	var names []string
	for _, a := range l.acts {
		names = append(names, a.name)
	}
	return strings.Join(names, ",")
}

// portsOf are the ports that engines of a lane may have. Those of two lanes never meet.
func portsOf(name string) (first, last int) {
	half := firstPort + (lastPort-firstPort)/2
	switch name {
	case "pools":
		return firstPort, half
	case "others":
		return half + 1, lastPort
	}
	return firstPort, lastPort
}

// lines writes whole lines of several sources, each with the name of its source.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lines) copy(name string, from io.Reader) {
	s := bufio.NewScanner(from)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		w.mu.Lock()
		fmt.Fprintf(w.to, "%-7s%s\n", name, s.Text())
		w.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, from) // a line that is too long must not stop its source
}
