package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An act that cannot run on this machine is not reported as passed, and a run that was asked for this act
// fails.
func TestAnUntriedActHasNotHeld(t *testing.T) {
	a := act{name: "path", holds: "something"}
	err := sum([]outcome{
		{act{name: "doctor"}, time.Second, nil}, {a, time.Second, fmt.Errorf("x: %w", &untried{"no root"})},
	})
	if err == nil || !strings.Contains(err.Error(), "path") ||
		!strings.Contains(err.Error(), "not tried: no root") {
		t.Errorf("%v", err)
	}
	if _, is := errors.AsType[*untried](err); !is {
		t.Errorf("%v does not say that the act was not tried", err)
	}
}

// If the machine allows network namespaces, the network cuts the path between two engines only, in both
// ways of cutting, and restores it completely. A run removes the namespaces of a run that has ended. If
// the machine does not allow namespaces, the error says why.
func TestNetworkCutsOnePath(t *testing.T) {
	n, err := newNetwork([]string{"p0", "d0", "d1"})
	if _, is := errors.AsType[*untried](err); is {
		if n != nil || err.Error() == "not tried: " {
			t.Errorf("%v, %v", n, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.remove(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(netSpaces, n.Prefix+"*")); len(left) > 0 {
			t.Errorf("%v remain", left)
		}
	}()
	connects := func(from, to string) bool {
		script := fmt.Sprintf("exec 3<>/dev/tcp/%s/9", n.Hosts[to])
		line := inside(n.space(from), "timeout", "2", "bash", "-c", script)
		out, _ := exec.Command(line[0], line[1:]...).CombinedOutput()
		return strings.Contains(string(out), "refused") // refused by the kernel there, because no process listens
	}
	for _, how := range []cut{vanished, refused} {
		if err := n.cutPath(how, "p0", "d0"); err != nil {
			t.Fatal(err)
		}
		if connects("p0", "d0") || connects("d0", "p0") || !connects("p0", "d1") || !connects("d1", "d0") {
			t.Errorf("%s: want only the path from p0 to d0 cut", how)
		}
		if c, err := net.DialTimeout("tcp", n.Hosts["p0"]+":9", time.Second); err == nil {
			_ = c.Close()
		} else if !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: p0 is unreachable from here: %v", how, err)
		}
		if err := n.mendPath("p0", "d0"); err != nil {
			t.Fatal(err)
		}
		if !connects("p0", "d0") || !connects("d0", "p0") {
			t.Errorf("%s: the path is not restored", how)
		}
	}
	const gone = 1 << 30 // no process has this id
	left, lives := fmt.Sprint(netPrefix, gone, "-hub"), fmt.Sprint(netPrefix, os.Getppid(), "-hub")
	if err := commands(ip("netns", "add", left), ip("netns", "add", lives)); err != nil {
		t.Fatal(err)
	}
	if err := removeLeftNetworks(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(netSpaces, left)); err == nil {
		t.Errorf("%s remains", left)
	}
	if err := commands(ip("netns", "del", lives)); err != nil {
		t.Errorf("the namespaces of a running run were removed: %v", err)
	}
}
