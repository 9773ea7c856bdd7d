package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/panics"
)

// onceTime is how long Once waits for answers.
const onceTime = 10 * time.Second

// Once asks each question of file once, for a command that serves nothing. It returns file with the found
// members, and a note for each question: its members, or the reason why it has none.
func Once(
	ctx context.Context, file *config.Config, sources ...Source,
) (joined *config.Config, notes []string) {
	quiet := slog.New(slog.DiscardHandler)
	s := New(quiet, panics.Guard{Log: quiet}, sources...)
	s.Apply(s.Join(file))
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Run(ctx, func() error {
			s.Apply(s.Join(file))
			return nil
		})
	})
	s.wait(ctx, onceTime, func(Found) bool { return true })
	cancel()
	wg.Wait()
	for _, f := range s.inForce.found {
		notes = append(notes, f.note())
		for _, why := range f.Left {
			notes = append(notes, fmt.Sprintf("discovery.%s: %s", f.Source, why))
		}
	}
	for _, p := range s.inForce.left {
		notes = append(notes, p.Error())
	}
	return s.inForce.Config, notes
}

// note describes the found members in one line.
func (f *Found) note() string {
	where := fmt.Sprintf("discovery.%s: %s", f.Source, f.Name)
	switch {
	case f.Err != "":
		return where + ": " + f.Err
	case f.State == Waiting:
		return where + ": no answer in time"
	}
	all := some(f.Replicas, explain)
	return fmt.Sprintf("%s: %d for %s: %s", where, len(f.Replicas), f.Pool, strings.Join(all, ", "))
}

// explain says where r is, and what else was found.
func explain(r config.Replica) string {
	text := r.URL
	if r.Name != "" {
		text = r.Name + " at " + r.URL
	}
	for _, more := range []struct{ what, is string }{
		{"events at ", r.Events.Endpoint},
		{"rack ", r.Place.Rack},
		{"zone ", r.Place.Zone},
		{"revision ", r.Revision},
	} {
		if more.is != "" {
			text += " " + more.what + more.is
		}
	}
	if r.Drain {
		text += " draining"
	}
	return text
}
