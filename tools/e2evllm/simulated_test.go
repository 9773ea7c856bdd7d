package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestActsOnSimulatedEngines runs complete acts, with the built binary and simulated engines.
func TestActsOnSimulatedEngines(t *testing.T) {
	tandem := filepath.Join(t.TempDir(), "tandem")
	out, err := exec.Command("go", "build", "-o", tandem,
		"github.com/tandem-router/tandem/cmd/tandem").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := chosen("classes,mute,death,pieces,hybrid,multi")
	if err != nil {
		t.Fatal(err)
	}
	o := options{simulate: true, seed: 1, requests: 40, kills: 5}
	s := &stage{tandem: tandem, work: t.TempDir(), options: o}
	err = s.play(t.Context(), program)
	if err != nil {
		t.Error(err)
		for _, p := range s.processes {
			t.Logf("%s said at the end:\n%s", p.name, p.logTail(5))
		}
	}
	if err := s.leave(false); err != nil {
		t.Error(err)
	}
}
