// Package house_test keeps the layout of the module: which room may import which room, what a still room must
// not do, which words the code no longer uses, and what the documents say about the code.
//
// The tests read the sources themselves, in the test process: the test cache does not see what a child
// process, such as go list, reads.
package house_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the module's root the working directory, so that each test names files as the documents do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
