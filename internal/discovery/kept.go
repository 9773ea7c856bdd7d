package discovery

import (
	"reflect"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/config"
)

// Kept is the members that a router had found, saved for the next process.
type Kept struct {
	Discovery config.Discovery `json:"discovery"` // the questions; other questions have other answers
	At        time.Time        `json:"at"`        // when the router last used the members
	Answers   []config.Members `json:"answers"`
	Former    []config.Members `json:"former,omitempty"` // served because a question had no answer that counts
}

// keptFor is the longest time that kept members may be without a router. A running router checks the engines
// itself. An update stops the router for seconds, and a restart of its node for minutes. After an hour, other
// pods may have the addresses.
const keptFor = time.Hour

// Keep returns the members that are found at now, for [Set.Remember] of the next process; nil for none.
func (s *Set) Keep(now time.Time) *Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &Kept{At: now, Former: s.inForce.former}
	for _, f := range s.inForce.found {
		if len(f.Replicas) > 0 {
			k.Answers = append(k.Answers, f.Members)
		}
	}
	if len(k.Answers)+len(k.Former) == 0 {
		return nil
	}
	k.Discovery = s.inForce.file.Discovery
	return k
}

// Remember lets the members of k serve until their questions are answered. If the questions have changed, the
// members are former ones: they serve until a question of their pool has found something. It does nothing if
// k is nil, was without a router for too long, or was found elsewhere. Call it before [Set.Run].
func (s *Set) Remember(k *Kept, now time.Time) {
	if k == nil {
		return
	}
	if age := now.Sub(k.At); age.Abs() > keptFor {
		s.log.Warn("members that an earlier process found are ignored, they are too old", "at", k.At,
			"most", keptFor)
		return
	}
	s.mu.Lock()
	s.kept = k
	s.mu.Unlock()
	s.wake()
}

// fill gives kept members to a question of file that has no answer yet.
func (k *Kept) fill(file *config.Config, f *Found) {
	if k == nil || f.State != Waiting || !reflect.DeepEqual(k.Discovery, file.Discovery) {
		return
	}
	of := func(m config.Members) bool { return (&Found{Members: m}).question() == f.question() }
	if i := slices.IndexFunc(k.Answers, of); i >= 0 {
		f.Replicas = k.Answers[i].Replicas
		f.State, f.Since = Remembered, k.At
	}
}

// former returns the members of k that no question of file can bring back. An earlier process knew them.
func (k *Kept) former(file *config.Config) []config.Members {
	if k == nil || !samePlace(&k.Discovery, &file.Discovery) {
		return nil
	}
	all := slices.Clone(k.Former)
	if reflect.DeepEqual(k.Discovery, file.Discovery) {
		return all
	}
	for _, m := range k.Answers {
		all = append(all, config.Members{
			Source: config.Former, Name: m.Pool, Pool: m.Pool, Replicas: m.Replicas,
		})
	}
	return all
}

// samePlace reports whether a and b ask the same servers about the same namespace. Engines of another place
// do not belong to this router.
func samePlace(a, b *config.Discovery) bool {
	return a.Kubernetes.Server == b.Kubernetes.Server && a.Kubernetes.Namespace == b.Kubernetes.Namespace &&
		slices.Equal(a.DNS.Servers, b.DNS.Servers)
}

// unanswered returns the part of k that may be used once j is in force: the answers to questions that wait.
func (k *Kept) unanswered(j Joined) *Kept {
	if k == nil {
		return nil
	}
	rest := &Kept{Discovery: k.Discovery, At: k.At}
	for _, f := range j.found {
		if f.State == Remembered {
			rest.Answers = append(rest.Answers, f.Members)
		}
	}
	return rest
}
