// Package classes plays traffic of two classes with goals of their own. The result is how much load a fleet
// holds with Tandem's decision, with the same decision without knowledge of the goals, and with rules of the
// field.
//
// The steps, as files: classes.go plays and searches, table.go sums up and prints.
package classes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Halves returns the two classes: half of the sessions belong to readers that wait for each word, and nobody
// waits for the other half.
func Halves() []cluster.Class {
	return []cluster.Class{
		{Name: "interactive", TTFT: 500 * time.Millisecond, TPOT: 20 * time.Millisecond},
		{Name: "batch", TTFT: 10 * time.Second, TPOT: 200 * time.Millisecond},
	}
}

// The policies. In each cell, the capacity of a rival is the capacity of its best form. This favours rivals.
const (
	ours      = "tandem"
	unclassed = "tandem-unclassed"
)

var rivals = []string{
	"llm-d-goals", "llm-d-goals:most=1", "llm-d-goals+local:k=2", "llm-d-goals:most=1+local:k=2",
	"dynamo", "dynamo+local:k=2", "dynamo-priority:threshold=0.5", "dynamo-priority:threshold=1",
}

// Kinds returns the kinds of traffic that are played by default. Half of the kinds are blind: no constant was
// chosen on a blind kind.
func Kinds() []string {
	return []string{
		"conversation", "azure-chat", "azure-short", "answers28-short-most-ticks", "answers28-long-most-ticks",
		"answers300-short-most-bursts", "answers300-long-some-bursts", "answers3000-short-most-poisson",
		"conversation-late", "azure-bursts", "azure-28", "answers28-short-most-poisson",
		"answers28-long-some-ticks", "answers300-short-most-ticks", "answers300-long-most-bursts",
		"answers3000-short-none-ticks",
	}
}

// Options say what is played.
type Options struct {
	Traces  string   // folder of the files of recorded kinds
	Kinds   []string // of traffic
	Cluster string
	Profile string
	Seeds   int  // at least 1
	Rivals  bool // play them, too
	// Progress is told of each play; nil for nobody.
	Progress func(text string, share float64)
}

// enough is the share of good answers with which a fleet holds a load.
const enough = 0.9

// A play lasts at least this long, and has at least so many requests.
const (
	leastTime     = 40 * time.Second
	leastRequests = 600
)

// searched is a kind of traffic with a seed, under search.
type searched struct {
	*Options
	kind trace.Kind
	seed uint64
	need float64                          // share of good answers that is enough
	said map[string]map[float64][]float64 // good answers by policy and load, see play
}

// play returns the share of good answers: of all, and of each class.
func (s *searched) play(ctx context.Context, policy string, load float64) ([]float64, error) {
	if g, ok := s.said[policy][load]; ok {
		return g, nil
	}
	span := max(leastTime, time.Duration(leastRequests/(load*s.kind.Rate)*1e9))
	p, err := replay.Play{
		Traces: s.Traces, Cluster: s.Cluster, Profile: s.Profile, Scale: load, For: span, Seed: s.seed,
		EventLag: 100 * time.Millisecond, Poll: time.Second, Mix: &cluster.Mix{Classes: Halves()},
	}.OfKind(s.kind.Name)
	if err != nil {
		return nil, err
	}
	if s.kind.Loops {
		p.Rate *= load
	}
	o, _, err := p.Once(ctx, policy)
	if err != nil {
		return nil, err
	}
	g := []float64{o.Good, o.Classes[0].Good, o.Classes[1].Good}
	if s.said[policy] == nil {
		s.said[policy] = map[float64][]float64{}
	}
	s.said[policy][load] = g
	if s.Progress != nil {
		s.Progress(fmt.Sprintf("%s seed %d load %.3g %s: good %.1f %% (%.1f, %.1f)", s.kind.Name, s.seed, load,
			policy, g[0]*100, g[1]*100, g[2]*100), 0)
	}
	return g, nil
}

// errNone says that the goals do not fit the traffic: even an idle fleet hardly ever keeps the goals.
var errNone = errors.New("an idle fleet keeps the goals of too few answers")

// settle sets the share that is enough, by an idle fleet.
func (s *searched) settle(ctx context.Context) error {
	idle, err := s.play(ctx, unclassed, 0.02/s.kind.Rate)
	if err != nil {
		return err
	}
	if s.need = replay.Enough(enough, idle[0]); s.need == 0 {
		return errNone
	}
	return nil
}

// search leaves 5 % between the two loads on whose line the capacity is read off.
var search = replay.Search{Step: 1.5, Steps: 24, Halves: 3}

// capacity returns the largest load that a policy holds, searched from a load on; 0 if it holds none.
func (s *searched) capacity(ctx context.Context, policy string, load float64) (float64, error) {
	held, err := search.Capacity(load, s.need, func(load float64) (float64, error) {
		g, err := s.play(ctx, policy, load)
		if err != nil {
			return 0, err
		}
		return g[0], nil
	})
	if errors.Is(err, replay.ErrNotHeld) {
		return 0, nil
	}
	return held, err
}
