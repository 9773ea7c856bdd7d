package config

import (
	"fmt"
	"time"
)

// check checks the experimental settings. index is how the prefill pool is indexed.
func (e *Experimental) check(ck *checker, index string) {
	const field = "experimental.policy"
	policy := e.Policy
	ck.oneOf(field, policy, PolicyCost, PolicyTwoState, PolicyBlockTracker, PolicyPrefixHash, PolicyOverlapTiers)
	if index == IndexOff && policy != PolicyCost {
		ck.add(field, fmt.Sprintf("is %s, which needs blocks, and pools.prefill.index is off", policy),
			"choose cost, or pools.prefill.index: events or approximate")
	}
	e.Scoring.check(ck)
	e.Routers.check(ck)
}

func (s *ExperimentalScoring) check(ck *checker) {
	const field = "experimental.scoring."
	ck.oneOf(field+"units", s.Units, Seconds, Raw)
	ck.weight(field+"speed.prefill", s.Speed.Prefill)
	ck.weight(field+"speed.local", s.Speed.Local)
	ck.weight(field+"speed.decode", s.Speed.Decode)
}

func (r *ExperimentalRouters) check(ck *checker) {
	const field = "experimental.routers.interval"
	ck.longer(field, r.Interval, 20*time.Millisecond)
	if r.Interval > 10*time.Second {
		ck.add(field, fmt.Sprintf("is %v", r.Interval),
			"give at most 10s: most bookings have ended by then")
	}
}
