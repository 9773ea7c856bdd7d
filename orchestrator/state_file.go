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
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// stateFile saves learned values for the next process. It is read once, at the start, and written at
// intervals and at the end. If the file is unreadable, the router logs a warning and starts without learned
// values. Only the goroutine of run, and the start, use the disk.
//
// Long: the channels of its one writer stand beside what the writer and a reload share.
type stateFile struct {
	log     *slog.Logger
	planner *planner.Planner
	fleet   *fleet.Fleet   // its drains and distrusted engines are saved too
	sources *discovery.Set // whose members are kept too
	disk    liveness.Disk
	replace func(name string, data []byte) error // replaceFile, except in tests
	asked   chan chan error                      // tells run to write now, and gets the result
	soon    chan struct{}                        // has an element if the file should be written at once

	failed bool // the last write failed; owned by run

	mu      sync.Mutex       // guards the following; must not be held while anything can block
	config  config.State     // in force
	left    chan struct{}    // closed when another file is named
	waiting *planner.Learned // saved values of replicas that have not joined yet
	away    []fleet.Drained  // drained by an earlier process, and not found yet
	until   time.Time        // when the saved values and drains are dropped
}

// apply uses cfg from the next write on.
func (s *stateFile) apply(cfg config.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil || cfg.File != s.config.File {
		if s.left != nil {
			close(s.left)
		}
		s.left = make(chan struct{})
	}
	s.config = cfg
}

// inForce returns the present configuration. left is closed when another file is named.
func (s *stateFile) inForce() (cfg config.State, left <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.left
}

// stateVersion is the version of the file's format. Other versions are not read.
const stateVersion = 1

// stateWaits is how long saved values wait for an absent replica. Otherwise names of former replicas would
// accumulate in the file.
const stateWaits = 10 * time.Minute

// stateAge is the greatest age of a file. At half that age its values have a weight of 1/16,000.
const stateAge = 7 * 24 * time.Hour

// maxState limits the size of the file for reading and writing. 512 classes, 1,024 replicas and their links
// need a quarter.
const maxState = 32 << 20

// keptState is the content of the file.
type keptState struct {
	Version    int                `json:"tandem_state"`
	Learned    planner.Learned    `json:"learned"`
	Drained    []fleet.Drained    `json:"drained,omitempty"` // on command
	Distrusted []replica.Distrust `json:"distrusted,omitempty"`
	Found      *discovery.Kept    `json:"found,omitempty"`
}

// readState reads the state that an earlier process saved.
func readState(r io.Reader) (*keptState, error) {
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
	kept.Distrusted = slices.DeleteFunc(kept.Distrusted, func(d replica.Distrust) bool { return !d.Plausible() })
	return &kept, nil
}

// restore reads the file, if one is named and exists.
func (s *stateFile) restore() {
	cfg, _ := s.inForce()
	if cfg.File == "" {
		return
	}
	name := cfg.File
	found := make(chan *keptState, 1)
	err := s.disk.Look(func() error {
		kept, err := readStateFile(name)
		found <- kept
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		s.log.Warn("state file is ignored: all is learned anew", "file", name, "error", err)
		return
	}
	kept, now := <-found, time.Now()
	away := s.fleet.RestoreDrains(kept.Drained)
	s.mu.Lock()
	s.away, s.until = away, now.Add(stateWaits)
	s.mu.Unlock()
	learned := &kept.Learned
	s.fleet.HearDistrust(kept.Distrusted)
	s.sources.Remember(kept.Found, now)
	if age := now.Sub(learned.At); age > stateAge {
		s.log.Warn("state file is ignored: all is learned anew", "file", name, "error", fmt.Errorf(
			"it was written at %v, and is believed for %v", learned.At.Format(time.RFC3339), stateAge))
		return
	}
	groups := s.planner.RestoreLengths(learned, now)
	s.mu.Lock()
	s.waiting = learned
	s.mu.Unlock()
	s.log.Info("state file is read", "file", name, "groups", groups, "replicas", len(learned.Speeds),
		"links", len(learned.Links))
}

func readStateFile(name string) (*keptState, error) {
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
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

// arrived lets replicas that joined begin with their saved values.
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

// drainFound drains replicas again that an earlier process had drained and that joined after the start, for
// example because discovery found them. It must not run at the same time as [fleet.Fleet.Apply].
func (s *stateFile) drainFound(now time.Time) {
	s.mu.Lock()
	away := s.away
	if now.After(s.until) {
		away = nil
	}
	s.mu.Unlock()
	away = s.fleet.RestoreDrains(away)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// writeSoon makes run write the file as soon as it can. It does not wait.
func (s *stateFile) writeSoon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

// run writes the file each interval, when [stateFile.writeSoon] says so, and when ctx ends.
func (s *stateFile) run(ctx context.Context) {
	for {
		cfg, left := s.inForce()
		timer := time.NewTimer(cfg.Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			_ = s.write(ctx) // which has logged it
			return
		case <-left: // another file, and perhaps another interval
			timer.Stop()
		case <-timer.C:
			if s.write(ctx) != nil && ctx.Err() != nil {
				return // the write has had its time
			}
		case done := <-s.asked:
			timer.Stop()
			done <- s.write(ctx)
		case <-s.soon:
			timer.Stop()
			if s.write(ctx) != nil && ctx.Err() != nil {
				return
			}
		}
	}
}

// writeNow makes run write at once, and returns the error: [liveness.ErrStalled] if it takes too long.
// Without a file it does nothing.
func (s *stateFile) writeNow() error {
	if cfg, _ := s.inForce(); cfg.File == "" {
		return nil
	}
	done := make(chan error, 1)
	late := time.NewTimer(liveness.LastWrite)
	defer late.Stop()
	select {
	case s.asked <- done:
	case <-late.C:
		return liveness.ErrStalled
	}
	select {
	case err := <-done:
		return err
	case <-late.C:
		return liveness.ErrStalled
	}
}

// write replaces the file with the present state. It returns after the write, or when the wait ends: the disk
// stands still, and ctx has ended or another file is named.
func (s *stateFile) write(ctx context.Context) error {
	cfg, left := s.inForce()
	if cfg.File == "" {
		return nil
	}
	late, cancel := liveness.WithGrace(ctx, left)
	defer cancel()
	data, err := s.known(time.Now())
	if err == nil {
		err = s.disk.Write(late, cfg.File, func() error { return s.replace(cfg.File, data) })
	}
	if err != nil && !s.failed {
		s.log.Warn("state file was not written", "file", cfg.File, "error", err)
	}
	s.failed = err != nil
	return err
}

// known returns the content of the file at now. Values and drains of replicas that have not joined stay in it
// for stateWaits.
func (s *stateFile) known(now time.Time) ([]byte, error) {
	s.mu.Lock()
	kept := keptState{
		Version: stateVersion, Learned: s.planner.Learned(now.UTC()), Drained: s.fleet.Drains(),
		Distrusted: s.fleet.Distrusted(), Found: s.sources.Keep(now.UTC()),
	}
	if now.After(s.until) {
		s.waiting, s.away = nil, nil
	}
	if s.waiting != nil {
		kept.Learned.Speeds = append(kept.Learned.Speeds, s.waiting.Speeds...)
		kept.Learned.Links = append(kept.Learned.Links, s.waiting.Links...)
	}
	kept.Drained = slices.Concat(kept.Drained, s.away)
	s.mu.Unlock()
	data, err := json.Marshal(&kept)
	if err == nil && len(data) > maxState {
		err = fmt.Errorf("it would be larger than %d bytes", maxState)
	}
	return data, err
}
