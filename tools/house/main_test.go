// Package house_test keeps the layout of the module: which room may import which room, what a still room must
// not do, which words the code no longer uses, and what the documents say about the code.
//
// The tests read the sources themselves, in the test process: the test cache does not see what a child
// process, such as go list, reads.
package house_test

import "testing"

// atRoot makes the module's root the working directory of a test, so that the test names files as the
// documents do. The test cache sees a change of the working directory inside a test alone, and not one in
// TestMain. With one in TestMain it would take old results for new sources.
func atRoot(t *testing.T) {
	t.Helper()
	t.Chdir("../..")
}
