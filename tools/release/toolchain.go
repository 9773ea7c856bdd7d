package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tandem-router/tandem/tools/pinned"
)

//go:embed pins.txt
var pins []byte

// toolchain is an installed zig: a C and C++ cross-compiler with the sources of musl and of LLVM's C++
// library.
type toolchain struct{ dir string }

func (z toolchain) program() string { return filepath.Join(z.packages(), "zig") }

// lib is a folder of the sources that come with it.
func (z toolchain) lib(names ...string) string {
	return filepath.Join(append([]string{z.packages(), "lib"}, names...)...)
}

func (z toolchain) packages() string {
	found, _ := filepath.Glob(filepath.Join(z.dir, "venv", "lib", "python3*", "site-packages", "ziglang"))
	if len(found) == 0 {
		return z.dir
	}
	return found[0]
}

// env are the variables for zig's caches. All targets share one cache.
func (z toolchain) env() []string {
	return []string{
		"ZIG_GLOBAL_CACHE_DIR=" + filepath.Join(z.dir, "made"),
		"ZIG_LOCAL_CACHE_DIR=" + filepath.Join(z.dir, "made"),
	}
}

// targets are zig's names for Go's processors.
var targets = map[string]string{"amd64": "x86_64-linux-musl", "arm64": "aarch64-linux-musl"}

// installZig makes a virtual environment with exactly the pinned compiler, or uses the environment of an
// earlier call.
func installZig(ctx context.Context, root string) (toolchain, error) {
	z := toolchain{pinned.Folder(root, "zig", pins, []byte(runtime.GOARCH))}
	return z, pinned.Once(ctx, say, z.dir, "compiler", z.install)
}

func (z toolchain) install(ctx context.Context) error {
	python, err := anyPython(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(z.dir, "venv"), filepath.Join(z.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, pins, 0o644)); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	pip := []string{
		"-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps", "-r", file,
	}
	if err := pinned.Run(ctx, nil, filepath.Join(venv, "bin", "python"), pip...); err != nil {
		return err
	}
	return pinned.Run(ctx, z.env(), z.program(), "version")
}

// anyPython finds a Python that can make virtual environments. The pins fit all versions of Python 3.
func anyPython(ctx context.Context) (string, error) {
	names := []string{"python3", "python3.11"}
	if own := os.Getenv("PYTHON"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if exec.CommandContext(ctx, name, "-c", "import venv, ensurepip").Run() == nil {
			return name, nil
		}
	}
	return "", errors.New("there is no Python 3 with venv (" + strings.Join(names, ", ") +
		"); install one (Debian, Ubuntu: python3 python3-venv) or name it by PYTHON")
}
