package liveness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A file that does not answer when it is opened is refused, and no later reload waits for it.
func TestAFileThatCannotBeOpenedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Disk{Field: "decisions.file"}
		unfreeze := make(chan struct{})
		began := time.Now()
		err := d.Look(func() error { <-unfreeze; return nil })
		if took := time.Since(began); !errors.Is(err, ErrStalled) || took != FirstLook {
			t.Errorf("%v after %v", err, took)
		}
		close(unfreeze)
	})
}
