// Package valkeytest runs a real Valkey or Redis server for tests, and lets it fail.
package valkeytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Server is a server of the system's package, on this machine. One goroutine owns it.
type Server struct {
	Addr string
	t    testing.TB
	args []string
	cmd  *exec.Cmd
}

// Start runs a server that keeps everything in memory. args are added to its command line.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	return run(t, addr, append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(),
	}, args...))
}

// StartCluster runs a server that is a cluster of its own as soon as it gets the slots. By default, the bus
// of a cluster listens 10,000 ports higher, where a connection of another program may have the port.
func StartCluster(t testing.TB) *Server {
	t.Helper()
	_, bus, _ := net.SplitHostPort(freeAddr(t))
	return Start(t, "--cluster-enabled", "yes", "--cluster-port", bus)
}

// StartSentinel runs a sentinel that watches a master under this name, and promotes a replica soon.
func StartSentinel(t testing.TB, name, master string) *Server {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	host, masterPort, _ := net.SplitHostPort(master)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "port " + port + "\nbind 127.0.0.1\ndir " + filepath.Dir(file) +
		"\nsentinel monitor " + name + " " + host + " " + masterPort + " 1" +
		"\nsentinel down-after-milliseconds " + name + " 300\nsentinel failover-timeout " + name + " 2000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return run(t, addr, []string{file, "--sentinel"})
}

// freeAddr is an address where nobody listens. Its port is below those that systems give to connections, so
// that none takes it before the server listens, or while it is down.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if ln, err := net.Listen("tcp", addr); err == nil {
			defer ln.Close()
			return addr
		}
	}
	t.Fatal("no port from 10000 to 29999 is free")
	return ""
}

func run(t testing.TB, addr string, args []string) *Server {
	t.Helper()
	s := &Server{Addr: addr, t: t, args: append(args, "--logfile", filepath.Join(t.TempDir(), "log"))}
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// Restart starts the server, which is not running, and waits until it listens.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(binary(s.t), s.args...)
	s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", s.Addr)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the server does not listen: %v", err)
		}
	}
}

func binary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no valkey-server or redis-server: make deps-test installs one")
	return ""
}

// Kill ends the server at once, and with it all that it holds. It may be called again.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Freeze lets the server stand still, with its connections open, until [Server.Unfreeze].
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Unfreeze lets a frozen server go on.
func (s *Server) Unfreeze() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
