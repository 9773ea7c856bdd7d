package discovery

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/panics"
)

// Set is the sources of a router. Safe for concurrent use, except that one goroutine at a time may [Set.Join]
// and then [Set.Apply].
type Set struct {
	log     *slog.Logger
	panics  panics.Guard
	sources []Source
	changed chan struct{} // has an element when a source has found something

	mu      sync.Mutex // guards the following
	inForce Joined
	kept    *Kept              // from an earlier process, for questions without an answer
	told    map[question]Found // as the log has it
	applied chan struct{}      // closed and replaced by each Apply
}

// question identifies what was asked.
type question struct{ source, name, pool string }

func (f *Found) question() question { return question{f.Source, f.Name, f.Pool} }

// Joined is a configuration with the members that were found.
type Joined struct {
	Config *config.Config // of the file, with the members
	file   *config.Config
	found  []Found
	former []config.Members  // of before file, while questions of their pool wait
	unmet  map[question]bool // new questions of file that have found nothing so far
	left   config.Problems   // why found members were left out
}

// New makes the set of some sources.
func New(log *slog.Logger, guard panics.Guard, sources ...Source) *Set {
	return &Set{
		log: log, panics: guard, sources: sources, changed: make(chan struct{}, 1), applied: make(chan struct{}),
	}
}

// joinsApart is the least time between two changes of members. All changes within this time are made at once.
const joinsApart = 100 * time.Millisecond

// rejoinAgain is the time after which members that could not be applied are tried again.
const rejoinAgain = 5 * time.Second

// Run runs the sources until ctx ends, and waits for them. It calls rejoin when members have changed: rejoin
// joins and applies. After an error it calls rejoin again some seconds later, because no source may have news
// for hours.
func (s *Set) Run(ctx context.Context, rejoin func() error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, source := range s.sources {
		wg.Go(func() {
			s.panics.KeepRunning(ctx, "discovery", func() { source.Run(ctx, s.wake) })
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		s.panics.Contain("discovery", func() {
			if err := rejoin(); err != nil {
				s.log.Error("found members cannot be used, the former ones stay", "error", err)
				time.AfterFunc(rejoinAgain, s.wake)
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinsApart):
		}
	}
}

// routersTime is how long the start waits for other routers to be found.
const routersTime = 2 * time.Second

// WaitForRouters waits until every question for other routers has been asked once, its answer is in force, or
// two seconds have passed. [Set.Run] must have been called.
func (s *Set) WaitForRouters(ctx context.Context) {
	s.wait(ctx, routersTime, func(f Found) bool { return f.Pool == config.Peers })
}

// wait waits until every question that counts has been asked once, its answer is in force, or a time has
// passed.
func (s *Set) wait(ctx context.Context, most time.Duration, counts func(Found) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	unasked := func(f Found) bool { return counts(f) && !f.asked() }
	for ctx.Err() == nil {
		s.mu.Lock()
		wait, applied := slices.ContainsFunc(s.inForce.found, unasked), s.applied
		s.mu.Unlock()
		if !wait {
			return
		}
		select {
		case <-ctx.Done():
		case <-applied:
		}
	}
}

func (s *Set) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Found returns the newest answers to the questions in force.
func (s *Set) Found() []Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce.found
}

// Join joins file with what the sources have found. Nothing is in force before [Set.Apply].
func (s *Set) Join(file *config.Config) Joined {
	j := Joined{file: file}
	for _, source := range s.sources {
		j.found = append(j.found, source.Found(file)...)
	}
	s.mu.Lock()
	before, kept := s.inForce, s.kept
	s.mu.Unlock()
	for i := range j.found {
		kept.fill(file, &j.found[i])
	}
	j.join(nil)
	former := before.former
	if before.file != nil && before.file != file {
		former = missing(before.Config, j.Config)
	}
	recalled := kept.former(file)
	former = slices.Concat(former, recalled)
	j.noteUnmet(before, len(recalled) > 0)
	former = slices.DeleteFunc(former, func(m config.Members) bool { return !j.waits(m.Pool) })
	if len(former) > 0 {
		j.join(former)
		j.tellFormer()
	}
	return j
}

// tellFormer adds notes about pools where former members serve because an answer is empty.
func (j *Joined) tellFormer() {
	for i := range j.found {
		f := &j.found[i]
		stay := func(m config.Members) bool { return m.Pool == f.Pool && len(m.Replicas) > 0 }
		if f.State == Fresh && j.unmet[f.question()] && slices.ContainsFunc(j.former, stay) {
			f.Left = append(slices.Clone(f.Left), "nothing was found since the start or the reload: "+
				"the former members for "+f.Pool+" stay until something is found")
		}
	}
}

// Moves reports whether j has other members than the configuration in force.
func (s *Set) Moves(j Joined) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, now := s.inForce.Config, j.Config
	return !reflect.DeepEqual(old.Pools, now.Pools) || !slices.Equal(old.Routers.Peers, now.Routers.Peers)
}

// join adds the members to the configuration: new ones, then those of answers that are held, then remembered
// ones, then former ones.
func (j *Joined) join(former []config.Members) {
	byState := slices.Clone(j.found)
	slices.SortStableFunc(byState, func(a, b Found) int { return cmp.Compare(a.State, b.State) })
	var all []config.Members
	for _, f := range byState {
		all = append(all, f.Members)
	}
	j.former = former
	j.Config, j.left = j.file.With(append(all, former...)...)
}

// noteUnmet finds the questions that a reload asks newly and that have found nothing so far. An empty answer
// does not count for them: a wrong selector and an empty pool look alike. At the start this holds if an
// earlier process knew members that no question asks for.
func (j *Joined) noteUnmet(before Joined, recalled bool) {
	newly := recalled || before.file != nil && before.file != j.file
	j.unmet = map[question]bool{}
	for _, f := range j.found {
		if q := f.question(); len(f.Replicas) == 0 && (before.unmet[q] || newly && f.State == Waiting) {
			j.unmet[q] = true
		}
	}
}

// waits reports whether a question for the pool has no answer yet, or none that counts.
func (j *Joined) waits(pool string) bool {
	return slices.ContainsFunc(j.found, func(f Found) bool {
		return f.Pool == pool && (f.State == Waiting || f.State == Remembered || j.unmet[f.question()])
	})
}

// missing returns the members of before that now does not have.
func missing(before, now *config.Config) []config.Members {
	lost := func(pool string, before, now []config.Replica) config.Members {
		return config.Members{Source: config.Former, Name: pool, Pool: pool, Replicas: without(before, now)}
	}
	return []config.Members{
		lost(config.PoolPrefill, before.Pools.Prefill.Replicas, now.Pools.Prefill.Replicas),
		lost(config.PoolDecode, before.Pools.Decode.Replicas, now.Pools.Decode.Replicas),
		lost(config.Peers, routers(before.Routers.Peers), routers(now.Routers.Peers)),
	}
}

// routers writes addresses of routers as members.
func routers(urls []string) []config.Replica {
	all := make([]config.Replica, len(urls))
	for i, u := range urls {
		all[i].URL = u
	}
	return all
}

// Apply says that j is in force. It logs what is new.
func (s *Set) Apply(j Joined) {
	for _, source := range s.sources {
		source.Configure(j.file)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[question]Found{}
	for _, f := range j.found {
		s.tell(s.told[f.question()], f)
		told[f.question()] = f
	}
	for _, p := range j.left {
		if !slices.Contains(s.inForce.left, p) {
			s.log.Warn("a found replica is left out", "reason", p.Error())
		}
	}
	s.told, s.inForce = told, j
	s.kept = s.kept.unanswered(j)
	close(s.applied)
	s.applied = make(chan struct{})
}

// tell logs what is new in an answer.
func (s *Set) tell(was, is Found) {
	log := s.log.With("source", is.Source, "name", is.Name, "for", is.Pool)
	switch {
	case is.Err != "" && was.Err == "" && is.State == Held:
		log.Warn("discovery fails, the members found last stay", "members", len(is.Replicas), "error", is.Err)
	case is.Err != "" && was.Err == "" && is.State == Remembered:
		log.Warn("discovery fails, the members that an earlier process found serve", "members", len(is.Replicas),
			"known_at", is.Since, "error", is.Err)
	case is.Err != "" && was.Err == "":
		log.Warn("discovery fails, and has found nothing yet", "error", is.Err)
	case is.Err == "" && was.State == Remembered && is.State == Fresh:
		log.Info("discovery has answered, what an earlier process found counts no more", "members",
			len(is.Replicas))
	case is.Err == "" && was.Err != "" && is.State == Fresh:
		log.Info("discovery works again", "members", len(is.Replicas))
	}
	for _, why := range is.Left {
		if !slices.Contains(was.Left, why) {
			log.Warn("discovery found a problem", "reason", why)
		}
	}
	joined, left := without(is.Replicas, was.Replicas), without(was.Replicas, is.Replicas)
	if len(joined)+len(left) > 0 {
		log.Info("members found", "members", len(is.Replicas), "state", is.State.String(), "joined", ids(joined),
			"left", ids(left))
	}
}

// without returns the replicas with URLs that others do not have.
func without(all, others []config.Replica) []config.Replica {
	known := map[string]bool{}
	for _, r := range others {
		known[r.URL] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(r config.Replica) bool { return known[r.URL] })
}

// ids lists the names of replicas, some of many.
func ids(rs []config.Replica) []string { return some(rs, config.Replica.ID) }

// some says something of each replica, or of some of many.
func some(rs []config.Replica, say func(config.Replica) string) (texts []string) {
	const most = 8
	for i, r := range rs {
		if i == most {
			return append(texts, "...")
		}
		texts = append(texts, say(r))
	}
	return texts
}
