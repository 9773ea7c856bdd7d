package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed pins.txt
var pins []byte

//go:embed model.py
var modelMaker []byte

//go:embed sitecustomize.py
var siteCustomize []byte

const installer = "uv==0.13.8"

// writeBytecode lets Python keep what it has compiled, whatever the user's setting: without that each start of an engine compiles all of vLLM anew, in
// three processes.
const writeBytecode = "PYTHONDONTWRITEBYTECODE="

// environment is what one set of pins needs, kept in the user's cache between runs.
type environment struct {
	dir string // of everything below
}

func (e environment) python() string { return filepath.Join(e.dir, "venv", "bin", "python") }
func (e environment) model() string  { return filepath.Join(e.dir, "model") }
func (e environment) site() string   { return filepath.Join(e.dir, "site") }

// environmentDir is the folder for these pins and this model under root: another pin is another folder.
func environmentDir(root string) string {
	h := sha256.New()
	for _, part := range [][]byte{pins, modelMaker, siteCustomize, []byte(installer)} {
		h.Write(part)
		h.Write([]byte{0})
	}
	return filepath.Join(root, fmt.Sprintf("e2e-vllm-%x", h.Sum(nil)[:6]))
}

// prepare makes the environment in root, or reuses what is complete there. One process does it at a time.
func prepare(ctx context.Context, root string) (environment, error) {
	e := environment{dir: environmentDir(root)}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return e, err
	}
	lock, err := os.Create(filepath.Join(e.dir, "lock"))
	if err != nil {
		return e, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return e, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	steps := []struct {
		name string
		make func(context.Context, environment) error
	}{{"packages", installPackages}, {"site", writeSite}, {"model", makeModel}}
	for _, s := range steps {
		if err := once(ctx, e, s.name, s.make); err != nil {
			return e, err
		}
	}
	return e, nil
}

// once runs a step that no earlier run has completed.
func once(ctx context.Context, e environment, name string, step func(context.Context, environment) error) error {
	mark := filepath.Join(e.dir, name+".done")
	if _, err := os.Stat(mark); err == nil {
		say("%s: there already, in %s", name, e.dir)
		return nil
	}
	begun := time.Now()
	say("%s: being made in %s", name, e.dir)
	if err := step(ctx, e); err != nil {
		return fmt.Errorf("%s could not be made: %w", name, err)
	}
	say("%s: made in %.0f s", name, time.Since(begun).Seconds())
	return os.WriteFile(mark, nil, 0o644)
}

func installPackages(ctx context.Context, e environment) error {
	python, err := findPython(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(e.dir, "venv"), filepath.Join(e.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, pins, 0o644)); err != nil {
		return err
	}
	if err := command(ctx, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	if err := command(ctx, nil, e.python(), "-m", "pip", "install", "-q", installer); err != nil {
		return err
	}
	if err := command(ctx, nil, e.python(), "-m", "uv", "pip", "install", "-q", "--python", e.python(), "--no-deps", "-r", file); err != nil {
		return err
	}
	return command(ctx, []string{writeBytecode}, e.python(), "-c", "import nixl, vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_worker")
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

func writeSite(_ context.Context, e environment) error {
	if err := os.MkdirAll(e.site(), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.site(), "sitecustomize.py"), siteCustomize, 0o644)
}

func makeModel(ctx context.Context, e environment) error {
	maker := filepath.Join(e.dir, "model.py")
	if err := errors.Join(os.RemoveAll(e.model()), os.WriteFile(maker, modelMaker, 0o644)); err != nil {
		return err
	}
	return command(ctx, []string{"HF_HUB_OFFLINE=1"}, e.python(), maker, e.model())
}

// command runs a program in a process group of its own, which dies with ctx; its output is part of the error.
func command(ctx context.Context, env []string, name string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, lastLines(out.Bytes(), 30))
	}
	return nil
}

func lastLines(b []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
