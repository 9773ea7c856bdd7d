package orchestrator

import "testing"

// Of the descriptors there are a third at most goes to clients, since a request needs two more for its legs.
func TestClientConns(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 0, 1: 16, 64: 16, 112: 16, 256: 64, 1024: 320, 1 << 20: 349504, 1<<64 - 1: 1 << 24,
	} {
		got := clientConns(files)
		if got != want {
			t.Errorf("%d descriptors: %d clients, want %d", files, got, want)
		}
		if used := uint64(got*eachFiles + ownFiles); files >= 112 && used > files {
			t.Errorf("%d descriptors: %d clients need %d", files, got, used)
		}
	}
}
