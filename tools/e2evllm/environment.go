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
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed pins.txt
var pins []byte

//go:embed pins-0.20.txt
var pins20 []byte

//go:embed pins-0.24.txt
var pins24 []byte

//go:embed model.py
var modelMaker []byte

//go:embed sitecustomize.py
var siteCustomize []byte

const installer = "uv==0.13.8"

// writeBytecode lets Python keep what it has compiled, whatever the user's setting: without that each start of an engine compiles all of vLLM anew, in
// three processes.
const writeBytecode = "PYTHONDONTWRITEBYTECODE="

// environment is what an engine runs on, kept in the user's cache between runs. Each part has a folder of its own, named after what it is made of, so
// that another pin does not make the model again, nor another model install the packages.
type environment struct {
	root string // of everything that is kept
	dir  string // of the packages
}

func (e environment) python() string { return filepath.Join(e.dir, "venv", "bin", "python") }
func (e environment) model() string {
	return filepath.Join(folder(e.root, "model", modelMaker), "model")
}
func (e environment) site() string { return folder(e.root, "site", siteCustomize) }

// folder is the one below root for what is made of these parts.
func folder(root, what string, parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
		h.Write([]byte{0})
	}
	return filepath.Join(root, fmt.Sprintf("e2e-%s-%x", what, h.Sum(nil)[:6]))
}

// packages are those of one installation.
type packages struct {
	pins    []byte // one exact version a line
	imports string // what can be imported once they are there, separated by commas
}

// current are those of the version that Tandem is made for.
var current = packages{pins, "nixl, vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_worker"}

// earlier are those of other versions, by the version.
var earlier = map[string]packages{
	"0.20.0": {pins20, "vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_worker"},
	"0.24.0": {pins24, current.imports},
}

// of is the environment of another version, "" for this one. The model is the same.
func (e environment) of(version string) environment {
	if version == "" {
		return e
	}
	return earlier[version].in(e.root)
}

// in is where they are below root.
func (p packages) in(root string) environment {
	return environment{root: root, dir: folder(root, "packages", p.pins, []byte(installer))}
}

// furnish installs the versions that the engines are of.
func (e environment) furnish(ctx context.Context, engines []*engine) error {
	for i, is := range engines {
		if is.Version == "" || slices.ContainsFunc(engines[:i], func(before *engine) bool { return before.Version == is.Version }) {
			continue
		}
		if _, err := install(ctx, e.root, earlier[is.Version]); err != nil {
			return fmt.Errorf("vLLM %s: %w", is.Version, err)
		}
	}
	return nil
}

// prepare makes the environment of the current version in root, or reuses what is complete there.
func prepare(ctx context.Context, root string) (environment, error) {
	e, err := install(ctx, root, current)
	if err != nil {
		return e, err
	}
	if err := once(ctx, e.site(), "site", func(context.Context) error { return writeSite(e) }); err != nil {
		return e, err
	}
	return e, once(ctx, filepath.Dir(e.model()), "model", func(ctx context.Context) error { return makeModel(ctx, e) })
}

// install makes an environment of these packages in root, or reuses the one that is there; prepare makes the rest of it.
func install(ctx context.Context, root string, p packages) (environment, error) {
	e := p.in(root)
	return e, once(ctx, e.dir, "packages", func(ctx context.Context) error { return installPackages(ctx, e, p) })
}

// once runs a step that no earlier run has completed in dir. One process does it at a time.
func once(ctx context.Context, dir, name string, step func(context.Context) error) error {
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

func installPackages(ctx context.Context, e environment, p packages) error {
	python, err := findPython(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(e.dir, "venv"), filepath.Join(e.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, p.pins, 0o644)); err != nil {
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
	return command(ctx, []string{writeBytecode}, e.python(), "-c", "import "+p.imports)
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

func writeSite(e environment) error {
	return os.WriteFile(filepath.Join(e.site(), "sitecustomize.py"), siteCustomize, 0o644)
}

func makeModel(ctx context.Context, e environment) error {
	maker := filepath.Join(filepath.Dir(e.model()), "model.py")
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
