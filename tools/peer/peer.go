// Package peer installs vllm-router, another front for pools of vLLM servers, and says how it is started, so that Tandem can be measured and tried
// beside it (docs/benchmarks.md, docs/comparison.md).
package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Version is the one that pins.txt names.
const Version = "0.1.17"

//go:embed pins.txt
var pins []byte

// Router is an installed vllm-router.
type Router struct {
	dir string // of the virtual environment and what belongs to it
}

func (r Router) python() string { return filepath.Join(r.dir, "venv", "bin", "python") }

// Cache is where Install keeps what it makes, if nobody says otherwise.
func Cache() (string, error) {
	user, err := os.UserCacheDir()
	return filepath.Join(user, "tandem"), err
}

// Install makes a virtual environment of Python 3.11 with exactly the pinned packages in a folder of its own under root, or uses the one that an earlier call
// has completed there. One process does it at a time.
func Install(ctx context.Context, root string, say func(format string, args ...any)) (Router, error) {
	sum := sha256.Sum256(pins)
	r := Router{dir: filepath.Join(root, fmt.Sprintf("peer-%x", sum[:6]))}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return r, err
	}
	lock, err := os.Create(filepath.Join(r.dir, "lock"))
	if err != nil {
		return r, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return r, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	mark := filepath.Join(r.dir, "done")
	if _, err := os.Stat(mark); err == nil {
		return r, nil
	}
	say("vllm-router %s: being installed in %s", Version, r.dir)
	begun := time.Now()
	if err := r.install(ctx); err != nil {
		return r, fmt.Errorf("vllm-router %s could not be installed: %w", Version, err)
	}
	say("vllm-router %s: installed in %.0f s", Version, time.Since(begun).Seconds())
	return r, os.WriteFile(mark, nil, 0o644)
}

func (r Router) install(ctx context.Context) error {
	python, err := findPython(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(r.dir, "venv"), filepath.Join(r.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, pins, 0o644)); err != nil {
		return err
	}
	if err := command(ctx, python, "-m", "venv", venv); err != nil {
		return err
	}
	if err := command(ctx, r.python(), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "-r", file); err != nil {
		return err
	}
	return command(ctx, r.python(), "-c", "import importlib.metadata, vllm_router.router; assert importlib.metadata.version('vllm-router') == '"+Version+"'")
}

// Command is the program and its arguments that put the router before these engines, in its fastest form: replicas in turn, nothing logged. listen and metrics
// are addresses, prefill and decode URLs. more comes last and so overrides.
func (r Router) Command(listen, metrics string, prefill, decode []string, more ...string) (program string, args []string, err error) {
	host, port, err1 := net.SplitHostPort(listen)
	metricsHost, metricsPort, err2 := net.SplitHostPort(metrics)
	args = []string{
		"-m", "vllm_router.launch_router", "--host", host, "--port", port, "--prometheus-host", metricsHost, "--prometheus-port", metricsPort,
		// "critical" is taken for "info" by this version.
		"--log-level", "error", "--vllm-pd-disaggregation", "--prefill-policy", "round_robin", "--decode-policy", "round_robin",
	}
	for _, url := range prefill {
		args = append(args, "--prefill", url)
	}
	for _, url := range decode {
		args = append(args, "--decode", url)
	}
	return r.python(), append(args, more...), errors.Join(err1, err2)
}

// findPython returns a Python 3.11, for which the pins are. PYTHON names one that is elsewhere.
func findPython(ctx context.Context) (string, error) {
	names := []string{"python3.11", "python3"}
	if own := os.Getenv("PYTHON"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		out, err := exec.CommandContext(ctx, name, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])").Output()
		if err == nil && strings.TrimSpace(string(out)) == "3 11" {
			return name, nil
		}
	}
	return "", fmt.Errorf("none of %s is a Python 3.11 with venv; install one (Debian, Ubuntu: python3.11 python3.11-venv) or name it by PYTHON",
		strings.Join(names, ", "))
}

// command runs a program in a process group of its own, which dies with ctx; the end of its output is part of the error.
func command(ctx context.Context, name string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		said := out.Bytes()
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said[max(0, len(said)-4000):])
	}
	return nil
}
