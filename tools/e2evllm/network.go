package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// network gives each engine of a fleet a network namespace. So the path between two engines can be cut below
// everything that the engines and the router see:
//
//	namespace p0   eth0 198.18.N.10 --+
//	namespace p1   eth0 198.18.N.11 --+-- namespace hub, which forwards --- ours, 198.18.N.1
//	namespace d0   eth0 198.18.N.12 --+
//
// A rule of the hub drops or refuses packets from one engine to another. All names begin with the run's name,
// so that a later run can remove what a killed run has left.
type network struct {
	Prefix string            // of the names of this run's namespaces
	Octet  int               // N
	Hosts  map[string]string // the address of each engine, by its name

	cuts []cut
}

// cut is the way in which a path breaks.
type cut string

// Vanished packets reach no engine, and the sender gets no error: connections stand still. The hub answers
// refused packets, and existing connections are reset at both ends.
const (
	vanished cut = "blackhole"
	refused  cut = "prohibit"
)

// untried is the reason why an act cannot run here. Such an act counts as failed.
type untried struct{ reason string }

func (u *untried) Error() string { return "not tried: " + u.reason }

const netPrefix = "tandem-e2e-"

// newNetwork makes namespaces for engines with these names. First it removes the namespaces of earlier runs
// that have ended.
func newNetwork(names []string) (*network, error) {
	if err := canSeparate(); err != nil {
		return nil, err
	}
	if err := removeLeftNetworks(); err != nil {
		return nil, err
	}
	n := &network{Prefix: fmt.Sprint(netPrefix, os.Getpid(), "-"), Hosts: map[string]string{}}
	n.Octet = freeOctet(os.Getpid())
	if err := n.makeHub(); err != nil {
		return nil, errors.Join(&untried{"network namespaces cannot be made: " + err.Error()}, n.remove())
	}
	for i, name := range names {
		if err := n.join(name, fmt.Sprintf("198.18.%d.%d", n.Octet, 10+i)); err != nil {
			return nil, errors.Join(err, n.remove())
		}
	}
	return n, nil
}

// canSeparate names what is missing for network namespaces.
func canSeparate() error {
	if os.Geteuid() != 0 {
		return &untried{"it cuts paths between network namespaces, which needs root on Linux"}
	}
	for _, program := range []string{"ip", "ss", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			return &untried{"it cuts paths between network namespaces with iproute2: " + err.Error()}
		}
	}
	return nil
}

// freeOctet is the first octet, from the given one on, of which this machine has no address.
func freeOctet(from int) int {
	addrs, _ := net.InterfaceAddrs()
	for i := range 250 {
		octet := 1 + (from+i)%250
		taken := slices.ContainsFunc(addrs, func(a net.Addr) bool {
			return strings.HasPrefix(a.String(), fmt.Sprintf("198.18.%d.", octet))
		})
		if !taken {
			return octet
		}
	}
	return 1
}

func (n *network) space(name string) string { return n.Prefix + name }

func (n *network) gateway() string { return fmt.Sprintf("198.18.%d.254", n.Octet) }

func (n *network) net() string { return fmt.Sprintf("198.18.%d.0/24", n.Octet) }

// makeHub makes the namespace in the middle and a route from this namespace to it.
func (n *network) makeHub() error {
	hub, ours := n.space("hub"), fmt.Sprintf("198.18.%d.1", n.Octet)
	link := fmt.Sprintf("te2e%d", os.Getpid())
	return commands(
		ip("netns", "add", hub),
		inside(hub, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
		ip("link", "add", "name", link, "type", "veth", "peer", "name", "us", "netns", hub),
		ip("addr", "add", ours+"/32", "dev", link),
		ip("link", "set", link, "up"),
		ip("-n", hub, "addr", "add", n.gateway()+"/32", "dev", "us"),
		ip("-n", hub, "link", "set", "us", "up"),
		ip("-n", hub, "route", "add", ours+"/32", "dev", "us"),
		ip("route", "add", n.net(), "via", n.gateway(), "dev", link, "onlink", "src", ours),
	)
}

// join makes the namespace of an engine. All its routes go over the hub, with the whole net behind its
// address: transports check whether there is a route to their peer.
func (n *network) join(name, host string) error {
	hub, space := n.space("hub"), n.space(name)
	n.Hosts[name] = host
	return commands(
		ip("netns", "add", space),
		ip("-n", space, "link", "set", "lo", "up"),
		ip("-n", hub, "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space),
		ip("-n", space, "addr", "add", host+"/24", "dev", "eth0", "noprefixroute"),
		ip("-n", space, "link", "set", "eth0", "up"),
		ip("-n", hub, "addr", "add", n.gateway()+"/32", "dev", name),
		ip("-n", hub, "link", "set", name, "up"),
		ip("-n", hub, "route", "add", host+"/32", "dev", name),
		ip("-n", space, "route", "add", n.net(), "via", n.gateway(), "dev", "eth0", "onlink", "src", host),
		ip("-n", space, "route", "add", "default", "via", n.gateway(), "dev", "eth0", "onlink", "src", host),
	)
}

// cutPath cuts the path between a and b. All other paths stay.
func (n *network) cutPath(how cut, a, b string) error {
	n.cuts = append(n.cuts, how)
	err := n.rules("add", how, a, b)
	if how == refused && err == nil {
		err = errors.Join(n.reset(a, b), n.reset(b, a))
	}
	return err
}

// mendPath ends the newest cut between these two engines.
func (n *network) mendPath(a, b string) error {
	last := len(n.cuts) - 1
	how := n.cuts[last]
	n.cuts = n.cuts[:last]
	return n.rules("del", how, a, b)
}

func (n *network) rules(do string, how cut, a, b string) error {
	rule := func(from, to string) []string {
		return ip("-n", n.space("hub"), "rule", do, "from", n.Hosts[from], "to", n.Hosts[to], string(how))
	}
	return commands(rule(a, b), rule(b, a))
}

// reset breaks off the connections from a to b, like a kernel that learns of the break.
func (n *network) reset(a, b string) error {
	err := commands(inside(n.space(a), "ss", "-K", "dst", n.Hosts[b]))
	look := inside(n.space(a), "ss", "-tnH", "state", "established", "dst", n.Hosts[b])
	out, errLeft := exec.Command(look[0], look[1:]...).Output()
	if left := strings.TrimSpace(string(out)); left != "" && errLeft == nil {
		return errors.Join(&untried{"this kernel resets no connections (CONFIG_INET_DIAG_DESTROY): " + left},
			err)
	}
	return errLeft
}

// ip is a command line of iproute2, or of a program inside a namespace.
func ip(args ...string) []string { return append([]string{"ip"}, args...) }

func inside(space, program string, args ...string) []string {
	return append([]string{"ip", "netns", "exec", space, program}, args...)
}

// commands runs commands one after another, up to the first failure.
func commands(lines ...[]string) error {
	for _, line := range lines {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(line, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// remove removes the network and ends all processes in it.
func (n *network) remove() error {
	if n == nil {
		return nil
	}
	return removeSpaces(n.Prefix)
}

// netSpaces are the named namespaces.
const netSpaces = "/run/netns"

// removeLeftNetworks removes the networks of runs that have ended.
func removeLeftNetworks() error {
	spaces, err := filepath.Glob(filepath.Join(netSpaces, netPrefix+"*"))
	for _, space := range spaces {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(space), netPrefix), "-")
		pid, errID := strconv.Atoi(id)
		if errID != nil || syscall.Kill(pid, 0) == nil && pid != os.Getpid() {
			continue
		}
		say("network: %s of an ended run is removed", filepath.Base(space))
		err = errors.Join(err, removeSpaces(filepath.Base(space)))
	}
	return err
}

// removeSpaces removes the namespaces with this prefix. Their links end with them.
func removeSpaces(prefix string) error {
	spaces, err := filepath.Glob(filepath.Join(netSpaces, prefix+"*"))
	for _, space := range spaces {
		name := filepath.Base(space)
		err = errors.Join(err, endInside(name), commands(ip("netns", "del", name)))
	}
	return err
}

// endInside kills the processes in a namespace. Stopped engines have ended already; the engines of a killed
// run may still run.
func endInside(name string) error {
	for range 100 {
		out, err := exec.Command("ip", "netns", "pids", name).Output()
		if err != nil {
			return fmt.Errorf("ip netns pids %s: %w", name, err)
		}
		pids := strings.Fields(string(out))
		if len(pids) == 0 {
			return nil
		}
		for _, p := range pids {
			if pid, err := strconv.Atoi(p); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("processes are left in %s", name)
}
