package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A run that attaches to engines which stand installs nothing: it has no need of a package index.
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
		t.Errorf("the cache is there: %v", err)
	}
	if _, err := newStage(t.Context(), options{tandem: tandem, cache: cache}); err == nil {
		t.Error("without -attach nothing has to be installed")
	}
}
