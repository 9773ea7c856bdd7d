package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// shippedTraces is the folder of the recorded traffic that ships with Tandem, in a checkout or in an
// installed package.
func shippedTraces() string {
	const checkout, installed = "examples/traces", "/usr/share/tandem/traces"
	if _, err := os.Stat(checkout); err != nil {
		if _, err := os.Stat(installed); err == nil {
			return installed
		}
	}
	return filepath.FromSlash(checkout)
}

// tracesFlag says where the traces of recorded kinds are.
func tracesFlag(fs *pflag.FlagSet, folder *string) {
	fs.StringVar(folder, "traces", shippedTraces(),
		"`folder` of the traces; most recorded kinds want some that do not ship with Tandem")
}

// conversation returns the shipped trace that is played if no trace is named.
func conversation() string { return filepath.Join(shippedTraces(), "mooncake_conversation.jsonl.gz") }

// traceThere says where traces come from, if the file does not exist.
func traceThere(file string) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("no trace: %w; --trace names the file: the repository has some in examples/traces, "+
			"and `tandem replay capture` makes one of your own traffic", err)
	}
	return nil
}
