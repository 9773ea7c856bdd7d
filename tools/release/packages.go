package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tandem-router/tandem/tools/pinned"
)

// installed are the files of a package that stand in the repository, by where they go.
var installed = map[string]string{
	"usr/lib/systemd/system/tandem.service": "deploy/systemd/tandem.service",
	"etc/tandem/tandem.yaml":                "deploy/packages/tandem.yaml",
	"usr/share/doc/tandem/copyright":        "NOTICE",
	"usr/share/doc/tandem/LICENSE":          "LICENSE",
	"usr/share/doc/tandem/CHANGELOG.md":     "CHANGELOG.md",
}

// completions are the files of shells.
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
	files := map[string]string{
		"usr/bin/tandem":                       b.file,
		"usr/share/doc/tandem/tandem.cdx.json": m.path("tandem_linux_" + arch + ".cdx.json"),
	}
	maps.Copy(files, installed)
	traces, err := filepath.Glob("examples/traces/*")
	if err != nil {
		return root, err
	}
	for _, name := range traces {
		files["usr/share/tandem/traces/"+filepath.Base(name)] = name
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
		errors.Join(put(root, "usr/share/doc/tandem/THIRD-PARTY.txt", texts), m.stageCompletions(ctx, root))
}

func put(root, name string, data []byte) error {
	file := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// stageCompletions asks the binary of this machine: that for another processor cannot run here, and says the
// same.
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

// archive packs the same files for those who use no package manager.
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
		return map[string]string{"ARCH": arch, "VERSION": version, "FILES": root}[name]
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

// describedVersion is what git describe says behind a tag.
var describedVersion = regexp.MustCompile(
	`^v?(\d+(?:\.\d+)*)(?:-((?:alpha|beta|rc)[.\d]*))?(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// packageVersion is a version that sorts where it belongs for dpkg and rpm: v1.2.0-3-gabc is behind 1.2.0,
// and a commit without a tag before everything.
func packageVersion(version string) string {
	m := describedVersion.FindStringSubmatch(version)
	if m == nil {
		return "0~" + strings.NewReplacer("-", ".", "/", ".").Replace(version)
	}
	v := m[1]
	if m[2] != "" {
		v += "~" + m[2]
	}
	if m[3] != "" {
		v += "+" + m[3] + ".g" + m[4]
	}
	if m[5] != "" {
		v += "+dirty"
	}
	return v
}
