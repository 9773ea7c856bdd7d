//go:build man

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// extraCommands has the writer of man pages. Only make release builds it (-tags man), so that the binary need
// not include a renderer of Markdown.
func extraCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use: "man FOLDER TIME CONFIGURATION.md", Short: "write the man pages", Hidden: true,
		Args: between(3, 3, "the folder, the time as RFC 3339, and docs/configuration.md"),
		RunE: func(c *cobra.Command, args []string) error {
			at, err := time.Parse(time.RFC3339, args[1])
			if err != nil {
				return err
			}
			plainUsage(c.Root())
			c.Root().DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "Tandem", Manual: "Tandem", Date: &at}
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return err
			}
			return writeFormatPage(args[0], args[2], at)
		},
	}}
}

// writeFormatPage makes tandem.yaml(5) from the document of the configuration.
func writeFormatPage(folder, document string, at time.Time) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	_, body, _ := bytes.Cut(text, []byte("\n")) // the title
	page := "% \"tandem.yaml\" \"5\" \"" + at.Format("Jan 2006") + "\" \"Tandem\" \"Tandem\"\n\n" +
		"# NAME\n\ntandem.yaml - the configuration file of tandem(1)\n\n# DESCRIPTION\n"
	rendered := md2man.Render(append([]byte(page), body...))
	return os.WriteFile(filepath.Join(folder, "tandem.yaml.5"), rendered, 0o644)
}
