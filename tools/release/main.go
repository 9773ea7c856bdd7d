// Command release makes the files that users install (make release): for each processor a static binary, an
// archive, a .deb, an .rpm, an image and a bill of materials, and the checksums of all files.
//
// The steps, as files: toolchain.go installs the compiler. libzmq.go compiles the library. This file links
// both with Tandem. parts.go lists the parts of others in the binary, and sbom.go writes them as a bill of
// materials. packages.go and image.go make packages and images. sums.go writes the checksums.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var m maker
	flag.StringVar(&m.version, "version", "dev", "`version` of the release by SemVer, for example v0.1.0")
	flag.StringVar(&m.maintainer, "maintainer", "", "`name <address>` of the maintainer in packages")
	flag.StringVar(&m.out, "out", "build/release", "`folder` to make")
	flag.StringVar(&m.cache, "cache", "",
		"`folder` of the compiler and libzmq (default: tandem in the user's cache)")
	archs := flag.String("arch", "amd64,arm64", "`processors`, by Go's names")
	binaries := flag.Bool("only-binary", false, "make only the binaries")
	flag.StringVar(&m.runs, "runs-here", "build/tandem",
		"`binary` of this machine, which prints the completions of shells")
	certificates := flag.String("certificates", "/etc/ssl/certs/ca-certificates.crt",
		"`file` with the CA certificates for the image")
	flag.Parse()
	m.archs, m.certificates = strings.Split(*archs, ","), *certificates
	if err := m.run(ctx, *binaries); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// maker makes one release.
type maker struct {
	version      string
	maintainer   string
	out, cache   string
	archs        []string
	certificates string
	runs         string    // the binary of this machine
	at           time.Time // time of the commit, so that a rebuild has the same times
	images       []platformImage
}

func (m *maker) run(ctx context.Context, onlyBinary bool) (err error) {
	if !semVer.MatchString(m.version) && !onlyBinary {
		return fmt.Errorf("-version %q: want a version by SemVer, as v0.1.0 or v0.1.0-rc.1", m.version)
	}
	if m.at, err = commitTime(ctx); err != nil {
		return err
	}
	if m.cache == "" {
		if m.cache, err = pinned.Cache(); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(m.out); err != nil {
		return err
	}
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return err
	}
	zig, err := installZig(ctx, m.cache)
	if err != nil {
		return err
	}
	for _, arch := range m.archs {
		if err := m.one(ctx, zig, arch, onlyBinary); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if onlyBinary {
		return nil
	}
	if err := m.imageOfAll(); err != nil {
		return err
	}
	return writeSums(m.out)
}

// one makes everything for one processor.
func (m *maker) one(ctx context.Context, zig toolchain, arch string, onlyBinary bool) error {
	library, err := makeLibzmq(ctx, m.cache, zig, arch)
	if err != nil {
		return err
	}
	binary := m.path("tandem_linux_" + arch)
	if err := m.link(ctx, zig, library, arch, binary); err != nil || onlyBinary {
		return err
	}
	b, err := describe(ctx, binary, zig, library)
	if err != nil {
		return err
	}
	if err := m.writeSBOM(b, arch); err != nil {
		return err
	}
	say("%s: archive, packages and image", arch)
	files, err := m.stage(ctx, b, arch)
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	if err := m.archive(files, arch); err != nil {
		return err
	}
	if err := m.packages(ctx, files, arch); err != nil {
		return err
	}
	return m.image(files, arch)
}

func (m *maker) path(name string) string { return m.out + "/" + name }

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// tags choose Go's own look-ups of host names and users. A statically linked C library cannot load the
// modules of nsswitch.conf.
const tags = "netgo,osusergo"

// profile is a CPU profile of a router under load. The compiler arranges the code by it, which saves up to 2
// % of the processor time. Only releases use it: with a profile the compiler must compile every dependency
// anew.
const profile = "tools/release/tandem.pgo"

// link makes the static binary without symbols. The same commit gives the same binary.
func (m *maker) link(ctx context.Context, zig toolchain, library libzmq, arch, binary string) error {
	say("%s: tandem %s", arch, m.version)
	compiler := zig.program() + " cc -target " + targets[arch] + " -w"
	env := append(zig.env(),
		"CGO_ENABLED=1", "GOOS=linux", "GOARCH="+arch, "CC="+compiler,
		"CXX="+strings.Replace(compiler, " cc ", " c++ ", 1),
		"PKG_CONFIG_PATH=", "PKG_CONFIG_LIBDIR="+library.pkgConfig(), "PKG_CONFIG_SYSROOT_DIR=",
	)
	flags := "-s -w -linkmode external -extldflags -static -X main.version=" + m.version
	return pinned.Run(ctx, env, "go", "build", "-buildvcs=false", "-trimpath", "-tags", tags, "-pgo", profile,
		"-ldflags", flags, "-o", binary, "./cmd/tandem")
}

// commitTime is the time of the checked-out commit, or now without git.
func commitTime(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Now().UTC().Truncate(time.Second),
				nil //nolint:nilerr // an archive of the source has no history
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}
