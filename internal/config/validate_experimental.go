package config

import (
	"fmt"
	"time"
)

// choice checks how a replica of a pool is chosen, whose index is given.
func (ck *checker) choice(field string, p ExperimentalPool, index string) {
	ck.oneOf(field+".policy", p.Policy,
		PolicyCost, PolicyTwoState, PolicyBlockTracker, PolicyPrefixHash, PolicyOverlapTiers)
	ck.rule(field+".rule", p.Rule)
	if index == IndexOff && p.Policy != PolicyCost {
		ck.add(field+".policy",
			fmt.Sprintf("is %s, which goes by blocks, and index is off, which names none", p.Policy),
			"choose cost, or index: events or approximate")
	}
}

func (ck *checker) rule(field string, r Rule) {
	ck.share(field+".threshold", r.Threshold)
	ck.weight(field+".apart", r.Apart)
	ck.factor(field+".times", r.Times)
	ck.factor(field+".bound", r.Bound)
	ck.weight(field+".overlap", r.Overlap)
	ck.weight(field+".load", r.Load)
	ck.weight(field+".hot", r.Hot)
	ck.weight(field+".warm", r.Warm)
}

func (ck *checker) experimentalScoring(s ExperimentalScoring) {
	const field = "experimental.scoring."
	ck.oneOf(field+"units", s.Units, Seconds, Raw)
	ck.oneOf(field+"calibration", s.Calibration, CalibrationOn, CalibrationOff, CalibrationShadow)
	ck.longer(field+"tie_absolute", s.TieAbsolute, 0)
	ck.share(field+"tie_relative", s.TieRelative)
	ck.weight(field+"speed.prefill", s.Speed.Prefill)
	ck.weight(field+"speed.local", s.Speed.Local)
	ck.weight(field+"speed.decode", s.Speed.Decode)
}

func (ck *checker) experimentalRouters(r ExperimentalRouters) {
	const field = "experimental.routers.interval"
	ck.longer(field, r.Interval, 20*time.Millisecond)
	if r.Interval > 10*time.Second {
		ck.add(field, fmt.Sprintf("is %v", r.Interval),
			"give at most 10s: most of what was booked has ended by then")
	}
}
