// Package pinned installs software that the tools need, once, with exact versions, in the user's cache.
package pinned

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Say shows progress.
type Say func(format string, args ...any)

// Cache is the default folder for installations.
func Cache() (string, error) {
	user, err := os.UserCacheDir()
	return filepath.Join(user, "tandem"), err
}

// Folder returns a folder below root whose name depends on these parts: another pin gives another folder.
func Folder(root, what string, parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
		h.Write([]byte{0})
	}
	return filepath.Join(root, fmt.Sprintf("%s-%x", what, h.Sum(nil)[:6]))
}

// Once runs a step unless an earlier run has completed it in dir. Only one process runs it at a time.
func Once(ctx context.Context, say Say, dir, name string, step func(context.Context) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	mark := filepath.Join(dir, name+".done")
	if _, err := os.Stat(mark); err == nil {
		say("%s: there already, in %s", name, dir)
		return nil
	}
	begun := time.Now()
	say("%s: being made in %s", name, dir)
	if err := step(ctx); err != nil {
		return fmt.Errorf("%s could not be made: %w", name, err)
	}
	say("%s: made in %.0f s", name, time.Since(begun).Seconds())
	return os.WriteFile(mark, nil, 0o644)
}

// Python returns a Python 3.11, which the pins need. The environment variable PYTHON names another one.
func Python(ctx context.Context) (string, error) {
	names := []string{"python3.11", "python3"}
	if own := os.Getenv("PYTHON"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		out, err := exec.CommandContext(ctx, name, "-c",
			"import sys, venv, ensurepip; print(*sys.version_info[:2])").Output()
		if err == nil && strings.TrimSpace(string(out)) == "3 11" {
			return name, nil
		}
	}
	return "", fmt.Errorf("none of %s is a Python 3.11 with venv; install one (Debian, Ubuntu: python3.11 "+
		"python3.11-venv) or name it by PYTHON",
		strings.Join(names, ", "))
}

// Run runs a program in its own process group, which is killed when ctx ends. An error includes the end of
// the output.
func Run(ctx context.Context, env []string, name string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, LastLines(out.Bytes(), 30))
	}
	return nil
}

// LastLines are the last n lines of b.
func LastLines(b []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
