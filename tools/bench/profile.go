package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// profile starts a CPU profile of the tandem at this admin address, for the length of a phase. The returned
// function waits for the profile and stores it under name. Without -profiles both do nothing.
func (b *bench) profile(admin, name string) (done func() error) {
	if b.o.profiles == "" || admin == "" {
		return func() error { return nil }
	}
	ended := make(chan error, 1)
	go func() {
		text, err := get(
			fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, max(1, int(b.o.phase.Seconds()))),
		)
		if err == nil {
			err = os.WriteFile(filepath.Join(b.o.profiles, name+".pprof"), text, 0o644)
		}
		ended <- err
	}()
	return func() error { return <-ended }
}
