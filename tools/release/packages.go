package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

// installed are the files of the repository in a package, by their installed paths.
var installed = map[string]string{
	"usr/lib/systemd/system/tandem.service": "deploy/systemd/tandem.service",
	"etc/tandem/tandem.yaml":                "deploy/packages/tandem.yaml",
	"usr/share/doc/tandem/copyright":        "NOTICE",
	"usr/share/doc/tandem/LICENSE":          "LICENSE",
	"usr/share/doc/tandem/CHANGELOG.md":     "CHANGELOG.md",
	"usr/share/doc/tandem/README.md":        "README.md",
	"usr/share/doc/tandem/runbook.md":       "docs/runbook.md",
	"usr/share/doc/tandem/operations.md":    "docs/operations.md",
}

// completions are the completion files by shell.
var completions = map[string]string{
	"bash": "usr/share/bash-completion/completions/tandem",
	"zsh":  "usr/share/zsh/vendor-completions/_tandem",
	"fish": "usr/share/fish/vendor_completions.d/tandem.fish",
}

// stage lays out a file system with everything that a package installs, and returns its folder.
func (m *maker) stage(ctx context.Context, b built, arch string) (root string, err error) {
	if root, err = os.MkdirTemp("", "tandem-release-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(root)
		}
	}()
	texts, err := b.licenses()
	if err != nil {
		return root, err
	}
	files, err := m.sources(b, arch)
	if err != nil {
		return root, err
	}
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return root, err
		}
		if err := put(root, to, data); err != nil {
			return root, err
		}
	}
	if err := os.Chmod(filepath.Join(root, "usr/bin/tandem"), 0o755); err != nil {
		return root, err
	}
	return root,
		errors.Join(put(root, "usr/share/doc/tandem/THIRD-PARTY.txt", texts), m.stageCompletions(ctx, root),
			m.stageManuals(ctx, root))
}

// sources are the copied files of a package, by their installed paths.
func (m *maker) sources(b built, arch string) (map[string]string, error) {
	files := map[string]string{
		"usr/bin/tandem":                       b.file,
		"usr/share/doc/tandem/tandem.cdx.json": m.path("tandem_linux_" + arch + ".cdx.json"),
	}
	maps.Copy(files, installed)
	traces, err := filepath.Glob("examples/traces/*")
	for _, name := range traces {
		files["usr/share/tandem/traces/"+filepath.Base(name)] = name
	}
	return files, err
}

func put(root, name string, data []byte) error {
	file := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// stageCompletions runs this machine's binary, because a binary for another processor cannot run here. Both
// print the same.
func (m *maker) stageCompletions(ctx context.Context, root string) error {
	for shell, to := range completions {
		file := filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		script := fmt.Sprintf("%q completion %s >%q", m.runs, shell, file)
		if err := pinned.Run(ctx, nil, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

// stageManuals writes the man pages with a special build of the command line (cmd/tandem/man.go), and
// compresses them as Debian requires.
func (m *maker) stageManuals(ctx context.Context, root string) error {
	pages, err := os.MkdirTemp("", "tandem-man-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(pages)
	err = pinned.Run(ctx, nil, "go", "run", "-buildvcs=false", "-tags", "man", "./cmd/tandem", "man", pages,
		m.at.Format(time.RFC3339), "docs/configuration.md")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed) // without a time, so that the same text has the same bytes
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		section := strings.TrimPrefix(filepath.Ext(e.Name()), ".")
		if err := put(root, "usr/share/man/man"+section+"/"+e.Name()+".gz", packed.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// archive packs the same files for systems without a package manager.
func (m *maker) archive(root, arch string) error {
	t, err := createTar(m.path(fmt.Sprintf("tandem_%s_linux_%s.tar.gz", packageVersion(m.version), arch)), m.at)
	if err != nil {
		return err
	}
	return t.finish(t.tree("tandem", root))
}

// packages makes a .deb and an .rpm of the files.
func (m *maker) packages(ctx context.Context, root, arch string) error {
	text, err := os.ReadFile("deploy/packages/nfpm.yaml")
	if err != nil {
		return err
	}
	version := packageVersion(m.version)
	said := os.Expand(string(text), func(name string) string {
		return map[string]string{"ARCH": arch, "VERSION": version, "FILES": root, "MAINTAINER": m.maintainer}[name]
	})
	file := root + ".yaml"
	defer os.Remove(file)
	if err := os.WriteFile(file, []byte(said), 0o644); err != nil {
		return err
	}
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.at.Unix())}
	for _, packager := range []string{"deb", "rpm"} {
		target := m.path(fmt.Sprintf("tandem_%s_%s.%s", version, arch, packager))
		nfpm := []string{
			"tool", "-modfile=tools/nfpm.mod", "nfpm", "package", "-f", file, "-p", packager, "-t", target,
		}
		if err := pinned.Run(ctx, env, "go", nfpm...); err != nil {
			return err
		}
	}
	return nil
}

// semVer matches a version by SemVer 2.0.0 with the v of a tag: release, pre-release, build.
var semVer = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?$`)

// packageVersion is the version in a form that dpkg and rpm sort like SemVer: v0.1.0-rc.1 is 0.1.0~rc.1,
// which is before 0.1.0. A dash would begin the revision of a package.
func packageVersion(version string) string {
	m := semVer.FindStringSubmatch(version)
	if m == nil {
		return "0~" + strings.NewReplacer("-", ".", "/", ".").Replace(version)
	}
	v := m[1]
	if m[2] != "" {
		v += "~" + strings.ReplaceAll(m[2], "-", ".")
	}
	if m[3] != "" {
		v += "+" + strings.ReplaceAll(m[3], "-", ".")
	}
	return v
}

// imageTag is the version as a tag of an image, which must not contain a plus.
func imageTag(version string) string { return strings.ReplaceAll(version, "+", "-") }
