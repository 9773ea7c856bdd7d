package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the Makefile (-ldflags "-X main.version=..."). A plain go build has "dev", and go install
// of a tag has the tag.
var version = "dev"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version of this binary", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine names the version, the commit, the compiler and the platform.
func versionLine() string {
	version, revision := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if module := info.Main.Version; version == "dev" && strings.HasPrefix(module, "v") {
			version = module
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("tandem %s%s %s %s/%s\n",
		version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
