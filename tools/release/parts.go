package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// part is software of others in a binary.
type part struct {
	name, version string
	purl          string
	license       string   // SPDX name; "" if only the text is known
	texts         []string // files with the license
}

// built is a binary and its parts.
type built struct {
	file  string
	parts []part
}

// describe reads the modules from the binary, and adds the parts that the linker added.
func describe(ctx context.Context, binary string, zig toolchain, library libzmq) (built, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return built{}, err
	}
	root, modules, err := goFolders(ctx)
	if err != nil {
		return built{}, err
	}
	b := built{file: binary}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	b.parts = append(b.parts, part{
		"std", goVersion, "pkg:golang/std@" + goVersion, "BSD-3-Clause", []string{filepath.Join(root, "LICENSE")},
	})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		texts, err := moduleTexts(modules, m.Path, m.Version)
		if err != nil {
			return b, err
		}
		b.parts = append(b.parts, part{m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version, "", texts})
	}
	linked, err := linkedParts(zig, library)
	b.parts = append(b.parts, linked...)
	return b, err
}

// linkedParts are the C and C++ parts.
func linkedParts(zig toolchain, library libzmq) ([]part, error) {
	musl, err1 := versionIn(zig.lib("libc", "musl", "src", "internal", "version.h"), `VERSION "([0-9.]+)"`)
	llvm, err2 := versionIn(zig.lib("libcxx", "include", "__config"), `_LIBCPP_VERSION ([0-9]+)`)
	var major, minor, patch int // as 220108
	if _, err := fmt.Sscanf(llvm, "%2d%2d%2d", &major, &minor, &patch); err == nil {
		llvm = fmt.Sprintf("%d.%d.%d", major, minor, patch)
	}
	source := library.source()
	return []part{
		{
			"libzmq", libzmqVersion, "pkg:github/zeromq/libzmq@v" + libzmqVersion,
			"LGPL-3.0-or-later WITH LGPL-3.0-linking-exception",
			[]string{filepath.Join(source, "COPYING.LESSER"), filepath.Join(source, "COPYING")},
		},
		{"musl", musl, "pkg:generic/musl@" + musl, "MIT", []string{zig.lib("libc", "musl", "COPYRIGHT")}},
		{
			"libc++, libc++abi, libunwind, compiler-rt", llvm, "pkg:generic/llvm-project@" + llvm,
			"Apache-2.0 WITH LLVM-exception",
			[]string{zig.lib("libcxx", "LICENSE.TXT")},
		},
	}, errors.Join(err1, err2)
}

// versionIn finds the first group of pattern in a file.
func versionIn(name, pattern string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s does not contain its version", name)
	}
	return string(m[1]), nil
}

// licenseFile matches the names of license files.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// goFolders are the folders of Go itself and of unpacked modules.
func goFolders(ctx context.Context) (root, modules string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return "", "", err
	}
	root, modules, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return root, modules, nil
}

// moduleTexts finds the license of an unpacked module.
func moduleTexts(modules, path, version string) (texts []string, err error) {
	dir := filepath.Join(modules, escaped(path)+"@"+escaped(version))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if licenseFile.MatchString(e.Name()) && !e.IsDir() {
			texts = append(texts, filepath.Join(dir, e.Name()))
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%s has no license among its files", path)
	}
	return texts, nil
}

// escaped returns the folder name of a module's path: a capital is an exclamation mark and a small letter.
func escaped(path string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(path,
		func(c string) string { return "!" + strings.ToLower(c) })
}

// licenses joins all license texts, as most licenses require.
func (b built) licenses() ([]byte, error) {
	var text strings.Builder
	text.WriteString("What others made of this binary, and under which terms.\n")
	for _, p := range b.parts {
		for _, file := range p.texts {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&text, "\n%s\n%s %s (%s)\n\n%s\n",
				strings.Repeat("=", 80), p.name, p.version, filepath.Base(file), data)
		}
	}
	return []byte(text.String()), nil
}
