package config

import (
	"fmt"
	"time"
)

// choice checks how prefill replicas are chosen, by the index of their pool.
func (ck *checker) choice(policy, index string) {
	const field = "experimental.policy"
	ck.oneOf(field, policy, PolicyCost, PolicyTwoState, PolicyBlockTracker, PolicyPrefixHash, PolicyOverlapTiers)
	if index == IndexOff && policy != PolicyCost {
		ck.add(field, fmt.Sprintf("is %s, which needs blocks, and pools.prefill.index is off", policy),
			"choose cost, or pools.prefill.index: events or approximate")
	}
}

func (ck *checker) experimentalScoring(s ExperimentalScoring) {
	const field = "experimental.scoring."
	ck.oneOf(field+"units", s.Units, Seconds, Raw)
	ck.weight(field+"speed.prefill", s.Speed.Prefill)
	ck.weight(field+"speed.local", s.Speed.Local)
	ck.weight(field+"speed.decode", s.Speed.Decode)
}

func (ck *checker) experimentalRouters(r ExperimentalRouters) {
	const field = "experimental.routers.interval"
	ck.longer(field, r.Interval, 20*time.Millisecond)
	if r.Interval > 10*time.Second {
		ck.add(field, fmt.Sprintf("is %v", r.Interval),
			"give at most 10s: most bookings have ended by then")
	}
}
