package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// profile begins to take a CPU profile of the tandem with this admin address, for as long as a phase takes;
// the returned function waits for it and keeps it under name. It does nothing where no profiles are wanted.
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
