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

// Most of the time the acts wait for leases, starting engines and timeouts. So with -lanes two halves run
// side by side: the acts of the fleet "pools", and the acts of all other fleets. Each half, a lane, has a
// process, engines, ports, files and a fair time of its own, so no act is affected by the other lane.

// lane is one half of the acts.
type lane struct {
	name string
	acts []act
}

// lanesOf splits a program by fleet. It returns one lane if all acts belong to one half.
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

// sideBySide reports whether the lanes of the program run at the same time.
func (o *options) sideBySide(lanes []lane) bool {
	alone := o.attach != "" || o.stay != "" || o.lane != ""
	return o.lanes && !alone && len(lanes) > 1 && (o.simulate || availableMemory() >= bytesOfLanes)
}

// availableMemory is Linux's figure for memory available to new processes, in bytes, or 0 if unknown.
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

// playLanes plays all lanes at the same time, each in a process, and prints the output of each.
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

// endLimit is the longest time in which an interrupted lane must end its engines.
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

// names are the lane's acts in the form of -only.
func (l lane) names() string {
	var names []string
	for _, a := range l.acts {
		names = append(names, a.name)
	}
	return strings.Join(names, ",")
}

// portsOf returns the ports for engines of a lane. The ports of two lanes never overlap.
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
