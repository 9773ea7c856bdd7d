package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tandem-router/tandem/tools/pinned"
)

//go:embed pins.txt
var pins []byte

//go:embed pins-0.20.txt
var pins20 []byte

//go:embed pins-0.28.txt
var pins28 []byte

//go:embed model.py
var modelMaker []byte

//go:embed sitecustomize.py
var siteCustomize []byte

const installer = "uv==0.13.8"

// writeBytecode lets Python keep compiled files, whatever the user's setting. Otherwise each start of an
// engine compiles all of vLLM again, in three processes.
const writeBytecode = "PYTHONDONTWRITEBYTECODE="

// environment is the installation for the engines, kept in the user's cache between runs. Each part has a
// folder named after its inputs. So a changed pin does not make the model again, and a changed model does not
// install the packages again.
type environment struct {
	root string // of everything that is kept
	dir  string // of the packages
}

func (e environment) python() string { return filepath.Join(e.dir, "venv", "bin", "python") }
func (e environment) model() string {
	return filepath.Join(pinned.Folder(e.root, "e2e-model", modelMaker), "model")
}
func (e environment) site() string { return pinned.Folder(e.root, "e2e-site", siteCustomize) }

// packages are the packages of one installation.
type packages struct {
	pins    []byte // one exact version a line
	imports string // modules that a complete installation can import, separated by commas
}

// current are the packages of the version for which Tandem is made.
var current = packages{pins, "nixl, vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_worker"}

// earlier are the packages of other versions, by version.
var earlier = map[string]packages{
	"0.20.0": {pins20, "vllm.entrypoints.openai.api_server, vllm.v1.worker.cpu_worker"},
	"0.28.0": {pins28, current.imports},
}

// of is the environment of another version, or of the current one for "". The model is the same.
func (e environment) of(version string) environment {
	if version == "" {
		return e
	}
	return earlier[version].in(e.root)
}

// in is the folder of the packages below root.
func (p packages) in(root string) environment {
	return environment{root: root, dir: pinned.Folder(root, "e2e-packages", p.pins, []byte(installer))}
}

// furnish installs the versions that the engines need.
func (e environment) furnish(ctx context.Context, engines []*engine) error {
	for i, is := range engines {
		if is.Version == "" ||
			slices.ContainsFunc(engines[:i],
				func(before *engine) bool { return before.Version == is.Version }) {
			continue
		}
		if _, err := install(ctx, e.root, earlier[is.Version]); err != nil {
			return fmt.Errorf("vLLM %s: %w", is.Version, err)
		}
	}
	return nil
}

// prepare makes the environment of the current version in root, or reuses the complete parts.
func prepare(ctx context.Context, root string) (environment, error) {
	e, err := install(ctx, root, current)
	if err != nil {
		return e, err
	}
	if err := pinned.Once(ctx, say, e.site(), "site",
		func(context.Context) error { return writeSite(e) }); err != nil {
		return e, err
	}
	return e, pinned.Once(ctx, say, filepath.Dir(e.model()), "model",
		func(ctx context.Context) error { return makeModel(ctx, e) })
}

// install makes an environment with these packages in root, or reuses an existing one. prepare makes the
// rest of the environment.
func install(ctx context.Context, root string, p packages) (environment, error) {
	e := p.in(root)
	return e, pinned.Once(ctx, say, e.dir, "packages",
		func(ctx context.Context) error { return installPackages(ctx, e, p) })
}

func installPackages(ctx context.Context, e environment, p packages) error {
	python, err := pinned.Python(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(e.dir, "venv"), filepath.Join(e.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, p.pins, 0o644)); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, e.python(), "-m", "pip", "install", "-q", installer); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, e.python(), "-m", "uv", "pip", "install", "-q", "--python", e.python(),
		"--no-deps", "-r", file); err != nil {
		return err
	}
	return pinned.Run(ctx, []string{writeBytecode}, e.python(), "-c", "import "+p.imports)
}

func writeSite(e environment) error {
	return os.WriteFile(filepath.Join(e.site(), "sitecustomize.py"), siteCustomize, 0o644)
}

func makeModel(ctx context.Context, e environment) error {
	maker := filepath.Join(filepath.Dir(e.model()), "model.py")
	if err := errors.Join(os.RemoveAll(e.model()), os.WriteFile(maker, modelMaker, 0o644)); err != nil {
		return err
	}
	return pinned.Run(ctx, []string{"HF_HUB_OFFLINE=1"}, e.python(), maker, e.model())
}
