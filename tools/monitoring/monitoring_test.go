package main

import (
	"bytes"
	"os"
	"testing"
)

// The dashboard in the repository equals the output of this command.
func TestTheDashboardIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../deploy/grafana/tandem.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("deploy/grafana/tandem.json is old: go run ./tools/monitoring > deploy/grafana/tandem.json")
	}
}
