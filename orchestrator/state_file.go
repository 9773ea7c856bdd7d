package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// stateFile keeps what was learned for the next process: it is read once, at the start, and written now and
// then and at the end. A file that cannot be read costs a warning and what would have been known.
type stateFile struct {
	log     *slog.Logger
	planner *planner.Planner
	config  func() config.State // in force

	mu      sync.Mutex       // guards the following
	waiting *planner.Learned // of replicas that have not come yet
	until   time.Time        // when those are given up
	failed  bool             // the last try to write did
}

// stateVersion is that of the file. Another one's is not read.
const stateVersion = 1

// stateWaits is how long what was measured of a replica waits for it to come. Else names of replicas that
// have gone would gather in the file.
const stateWaits = 10 * time.Minute

// stateAge is how old a file may be. Of one of half that age a 16,000th is believed.
const stateAge = 7 * 24 * time.Hour

// maxState is the bytes of a file, and of one that is read. What 512 classes, 1,024 replicas and their links
// take is a quarter of it.
const maxState = 32 << 20

// keptState is the file.
type keptState struct {
	Version int             `json:"tandem_state"`
	Learned planner.Learned `json:"learned"`
}

// readState reads what a process before has learned.
func readState(r io.Reader) (*planner.Learned, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxState+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxState {
		return nil, fmt.Errorf("it is larger than %d bytes", maxState)
	}
	var version struct {
		Version int `json:"tandem_state"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	if version.Version != stateVersion {
		return nil, fmt.Errorf("it is of version %d, and %d is read", version.Version, stateVersion)
	}
	var kept keptState
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, err
	}
	return &kept.Learned, nil
}

// restore reads the file, if one is named and there.
func (s *stateFile) restore() {
	name := s.config().File
	if name == "" {
		return
	}
	learned, err := readStateFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		s.log.Warn("state file is ignored: all is learned anew", "file", name, "error", err)
		return
	}
	now := time.Now()
	if age := now.Sub(learned.At); age > stateAge {
		s.log.Warn("state file is ignored: all is learned anew", "file", name, "error", fmt.Errorf(
			"it was written at %v, and is believed for %v", learned.At.Format(time.RFC3339), stateAge))
		return
	}
	groups := s.planner.RestoreLengths(learned, now)
	s.mu.Lock()
	s.waiting, s.until = learned, now.Add(stateWaits)
	s.mu.Unlock()
	s.log.Info("state file is read", "file", name, "groups", groups, "replicas", len(learned.Speeds),
		"links", len(learned.Links))
}

func readStateFile(name string) (*planner.Learned, error) {
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // to open a pipe would wait for somebody who writes
		return nil, errNoFile
	}
	f, err := os.Open(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readState(f)
}

var errNoFile = errors.New("it is no file")

// stateBehind is the file that links called name lead to, whether it is there or not. What is no file must
// not be replaced: a rename would put a file in the place of a device.
func stateBehind(name string) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(name)
		if err != nil {
			break // it is none
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(name) + string(filepath.Separator) + to
		}
		name = to
	}
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return name, nil
	case err == nil && !info.Mode().IsRegular():
		err = errNoFile
	}
	return name, err
}

// maxLinks is how many links lead to a file at most, as in Linux.
const maxLinks = 40

// arrived lets replicas that have come begin with what was measured of them.
func (s *stateFile) arrived(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		return
	}
	s.planner.RestoreReplicas(s.waiting, now)
	if len(s.waiting.Speeds)+len(s.waiting.Links) == 0 || now.After(s.until) {
		s.waiting = nil
	}
}

// run writes the file each interval and when ctx ends.
func (s *stateFile) run(ctx context.Context) {
	for {
		timer := time.NewTimer(s.config().Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			s.write(time.Now())
			return
		case <-timer.C:
			s.write(time.Now())
		}
	}
}

// write puts what is known by now in the place of the file. What could not be given to a replica yet stays.
func (s *stateFile) write(now time.Time) {
	name := s.config().File
	if name == "" {
		return
	}
	kept := keptState{Version: stateVersion, Learned: s.planner.Learned(now.UTC())}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		kept.Learned.Speeds = append(kept.Learned.Speeds, s.waiting.Speeds...)
		kept.Learned.Links = append(kept.Learned.Links, s.waiting.Links...)
	}
	err := replaceFile(name, &kept)
	if err != nil && !s.failed {
		s.log.Warn("state file was not written", "file", name, "error", err)
	}
	s.failed = err != nil
}

// replaceFile writes beside the file and renames, so that whoever reads finds the old one or the new one. A
// link to it stays one.
func replaceFile(name string, kept *keptState) error {
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if len(data) > maxState {
		return fmt.Errorf("it would be larger than %d bytes", maxState)
	}
	if name, err = stateBehind(name); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tandem-state-*") // for nobody else to read
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
