package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A run that attaches to running engines installs nothing and needs no package index.
func TestAttachingInstallsNothing(t *testing.T) {
	tandem, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir()) // no python, no pip
	cache := filepath.Join(t.TempDir(), "cache")
	s, err := newStage(t.Context(), options{tandem: tandem, cache: cache, attach: "fleet.json"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.work) })
	if _, err := os.Stat(cache); !os.IsNotExist(err) {
		t.Errorf("the cache folder was made: %v", err)
	}
	if _, err := newStage(t.Context(), options{tandem: tandem, cache: cache}); err == nil {
		t.Error("a run without -attach did not install packages")
	}
}
