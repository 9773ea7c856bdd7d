package main

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

// tags choose Go's own look-ups of names and users: those of a C library that is linked in cannot load what
// nsswitch.conf names.
const tags = "netgo,osusergo"

// profile is a CPU profile of a router under load. The compiler arranges the code by it, which saves up to 2
// % of the processor time. Only releases use it: with a profile the compiler must compile every dependency
// anew.
const profile = "tools/release/tandem.pgo"

// link makes the binary: static, without symbols, and the same again for the same commit.
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

// commitTime is when the commit was made that is checked out, or now where there is none.
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
