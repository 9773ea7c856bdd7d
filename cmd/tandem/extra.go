//go:build !man

package main

import "github.com/spf13/cobra"

// extraCommands are the commands of special builds: none here.
func extraCommands() []*cobra.Command { return nil }
