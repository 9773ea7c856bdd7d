package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// State is something that people should know about a replica that is up: why it gets fewer requests than
// others, or none.
type State struct {
	State string    `json:"state"`
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
}

// The states of a replica. Several can hold together. Each one has a series in tandem_replica_state. The
// troubles of package setup are states too: faults in how the engine was started.
const (
	StateSlow       = "slow"           // it takes a multiple of its pool's time
	StateSequences  = "sequences_full" // it runs its maximum of sequences, and has room for more
	StateUnreported = "unreported"     // it answers, and does not tell its load in time
	StateAsleep     = "asleep"         // it is in vLLM's sleep mode, and gets no requests until it wakes
	StateDistrusted = "distrusted"     // its cache may hold wrong blocks, and is not used until it is restarted
	// No replica of the other pool can work with it, or transfers with each failed.
	StateUnpaired = "unpaired"
	StateAdapter  = "adapter_differs" // a replica of the other pool has other weights under an adapter's name

	// It failed too often at prefilling for others, and takes no requests until a trial goes well.
	StateEjectedPrefill = "ejected_prefill"
	StateEjectedDecode  = "ejected_decode" // at generating from transferred blocks
	StateEjectedWhole   = "ejected_whole"  // at doing both alone
	StateHalfPrefill    = "half_open_prefill"
	StateHalfDecode     = "half_open_decode"
	StateHalfWhole      = "half_open_whole" // it returns: as many requests at once as have succeeded

	// It is a prefill replica, and no recent request was split, though many came.
	StatePoolIdle = "pool_idle"

	// For half a minute, its engine has had more requests than this router and the routers that it knows have
	// sent.
	StateOthers = "requests_of_others"

	// An operator drains it: it gets no new requests.
	StateDraining = "draining" // and some still run there
	StateDrained  = "drained"  // and none runs there: it can be stopped
)

// StateNames returns all states that a replica can be in.
func StateNames() []string {
	return append([]string{
		StateSlow, StateSequences, StateUnreported, StateAsleep, StateDistrusted, StateUnpaired, StateAdapter,
		StateEjectedPrefill, StateEjectedDecode, StateEjectedWhole, StateHalfPrefill, StateHalfDecode,
		StateHalfWhole, StateDraining, StateDrained, StatePoolIdle, StateOthers,
	}, setup.Names()...)
}

// EjectedState is the state of a replica that is ejected at a leg.
func EjectedState(leg outlier.Leg) string {
	return [...]string{StateEjectedPrefill, StateEjectedDecode, StateEjectedWhole}[leg]
}

// HalfOpenState is the state of a replica that comes back at a leg.
func HalfOpenState(leg outlier.Leg) string {
	return [...]string{StateHalfPrefill, StateHalfDecode, StateHalfWhole}[leg]
}

// states are the present states of the replicas of one server. Safe for concurrent use.
type states struct {
	server *server // for the log

	mu    sync.Mutex // guards the following
	holds map[replica.ID][]State
}

// put sets or clears a state of id; an empty cause clears it. It reports whether the state has begun or
// ended. A new cause alone is no change.
func (s *states) put(id replica.ID, state, cause string, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[id]
	at := slices.IndexFunc(held, func(h State) bool { return h.State == state })
	switch {
	case cause == "" && at < 0:
		return false
	case cause == "":
		s.holds[id] = slices.Delete(held, at, at+1)
		return true
	case at >= 0:
		held[at].Cause = cause
		return false
	}
	if s.holds == nil {
		s.holds = map[replica.ID][]State{}
	}
	s.holds[id] = append(held, State{state, cause, now})
	return true
}

// of returns a copy of the states of id, in the order in which they began.
func (s *states) of(id replica.ID) []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holds[id])
}

// has reports whether state holds of id.
func (s *states) has(id replica.ID, state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.holds[id], func(h State) bool { return h.State == state })
}

// any reports whether some state holds of id.
func (s *states) any(id replica.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds[id]) > 0
}

// rename keeps the states of replicas under their present names.
func (s *states) rename(to replica.Renames) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = replica.Rekey(s.holds, to.Now)
}

// set sets or clears a state of a replica, and logs the change. An empty cause clears the state.
func (s *states) set(id replica.ID, state, cause string) {
	if cause == "" && !s.any(id) || !s.put(id, state, cause, time.Now()) {
		return
	}
	log, pool := s.server.log, s.server.role.String()
	if cause == "" {
		log.Info("replica state has ended", "replica", string(id), "pool", pool, "state", state)
		return
	}
	log.Warn("replica state", "replica", string(id), "pool", pool, "state", state, "cause", cause)
}
