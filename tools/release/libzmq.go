package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-router/tandem/tools/pinned"
)

// The release of libzmq in the binary. The tests on Debian 12 use the same release. Debian's source package
// contains the original archive.
const (
	libzmqVersion = "4.3.4"
	libzmqSum     = "0ff5a531c9ffaf0dfdc7dc78d13d1383088f454896d252934c429b2554d10559"
	libzmqURL     = "https://github.com/zeromq/libzmq/archive/refs/tags/v" + libzmqVersion + ".tar.gz"
	libzmqDebian  = "bookworm"
)

var (
	//go:embed libzmq/platform.hpp
	platform []byte
	//go:embed libzmq/interrupted.patch
	interrupted []byte
)

// libzmq is the static library for one processor.
type libzmq struct{ dir string }

// pkgConfig is the folder where pkg-config finds it.
func (l libzmq) pkgConfig() string { return filepath.Join(l.dir, "pkgconfig") }

// source is the folder with its sources.
func (l libzmq) source() string { return filepath.Join(l.dir, "libzmq-"+libzmqVersion) }

func makeLibzmq(ctx context.Context, root string, zig toolchain, arch string) (libzmq, error) {
	target, ok := targets[arch]
	if !ok {
		return libzmq{}, fmt.Errorf("no target is known for this processor")
	}
	l := libzmq{pinned.Folder(root, "libzmq-"+arch, pins, []byte(libzmqSum+unity+target), platform, interrupted)}
	return l, pinned.Once(ctx, say, l.dir, "libzmq", func(ctx context.Context) error {
		archive := filepath.Join(l.dir, "libzmq.tar.gz")
		if err := fetchLibzmq(ctx, archive); err != nil {
			return err
		}
		if err := l.unpack(ctx, archive); err != nil {
			return err
		}
		return l.compile(ctx, zig, target)
	})
}

// fetchLibzmq gets the archive from the file in LIBZMQ_ARCHIVE, from Debian, or from upstream. All three are
// equal to the last byte.
func fetchLibzmq(ctx context.Context, archive string) error {
	var failed error
	for _, from := range []func(context.Context, string) error{fromFile, fromDebian, fromUpstream} {
		err := from(ctx, archive)
		if err == nil {
			if err = checkSum(archive, libzmqSum); err == nil {
				return nil
			}
		}
		failed = errors.Join(failed, err)
	}
	return fmt.Errorf("no source of libzmq %s: %w", libzmqVersion, failed)
}

func fromFile(_ context.Context, archive string) error {
	name := os.Getenv("LIBZMQ_ARCHIVE")
	if name == "" {
		return errors.New("LIBZMQ_ARCHIVE names none")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(archive, data, 0o644)
}

// fromDebian gets the source package by apt with its own list of sources, because few machines have sources
// in their list.
func fromDebian(ctx context.Context, archive string) error {
	script := `set -eu
mkdir -p "$1/lists/partial" && cd "$1" && rm -f zeromq3_*
echo "deb-src http://deb.debian.org/debian $2 main" >sources.list
apt() { apt-get -qq -o Dir::Etc::SourceList="$1/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::lists="$1/lists" \
	-o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3 "$2" "$3" "$4"; }
apt "$1" update -y -y && apt "$1" source --download-only zeromq3
mv zeromq3_*.orig.tar.gz libzmq.tar.gz && rm -rf lists zeromq3_*`
	return pinned.Run(ctx, nil, "sh", "-c", script, "sh", filepath.Dir(archive), libzmqDebian)
}

func fromUpstream(ctx context.Context, archive string) error {
	return pinned.Run(ctx, nil, "curl", "-fsSL", "--retry", "3", "-o", archive, libzmqURL)
}

func checkSum(name, want string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != want {
		return fmt.Errorf("%s has the checksum %s, want %s", name, got, want)
	}
	return nil
}

func (l libzmq) unpack(ctx context.Context, archive string) error {
	if err := os.RemoveAll(l.source()); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, "tar", "-xzf", archive, "-C", l.dir); err != nil {
		return err
	}
	patch := filepath.Join(l.dir, "interrupted.patch")
	return errors.Join(
		os.WriteFile(filepath.Join(l.source(), "src", "platform.hpp"), platform, 0o644),
		os.WriteFile(patch, interrupted, 0o644),
		pinned.Run(ctx, nil, "patch", "-d", l.source(), "-p1", "-i", patch),
	)
}

// unity is the first line of a file that includes all others. So the compiler reads every header once, and
// needs a fifth of the time.
const unity = "// All of libzmq but its websockets.\n"

// compile makes libzmq.a and its pkg-config file.
func (l libzmq) compile(ctx context.Context, zig toolchain, target string) error {
	sources, err := filepath.Glob(filepath.Join(l.source(), "src", "*.cpp"))
	if err != nil || len(sources) == 0 {
		return errors.Join(err, errors.New("no source files"))
	}
	var text strings.Builder
	text.WriteString(unity)
	for _, name := range sources {
		if base := filepath.Base(name); !strings.HasPrefix(base, "ws_") && !strings.HasPrefix(base, "wss_") {
			fmt.Fprintf(&text, "#include \"src/%s\"\n", base)
		}
	}
	one, object := filepath.Join(l.source(), "unity.cpp"), filepath.Join(l.dir, "unity.o")
	include, library := filepath.Join(l.source(), "include"), filepath.Join(l.dir, "libzmq.a")
	pc := fmt.Sprintf(
		"Name: libzmq\nDescription: static\nVersion: %s\nCflags: -I%s -DZMQ_STATIC\nLibs: %s -lc++\n",
		libzmqVersion, include, library,
	)
	if err := errors.Join(
		os.WriteFile(one, []byte(text.String()), 0o644), os.MkdirAll(l.pkgConfig(), 0o755), os.RemoveAll(library),
		os.WriteFile(filepath.Join(l.pkgConfig(), "libzmq.pc"), []byte(pc), 0o644),
	); err != nil {
		return err
	}
	flags := []string{
		"c++", "-target", target, "-O2", "-std=c++11", "-w", "-DNDEBUG", "-DZMQ_STATIC",
		"-ffile-prefix-map=" + l.dir + "=.",
	}
	flags = append(flags, "-I"+l.source(), "-I"+l.source()+"/src", "-I"+include, "-c", one, "-o", object)
	if err := pinned.Run(ctx, zig.env(), zig.program(), flags...); err != nil {
		return err
	}
	return pinned.Run(ctx, zig.env(), zig.program(), "ar", "rcsD", library, object)
}
