package config

import (
	"reflect"
	"strings"
)

// formerField is a field that was: the key under which it stood in a struct.
type formerField struct {
	of  reflect.Type
	key string
}

// former explains the removed fields, by path. A file with a removed field is refused, so that no operator
// believes the field to be in force.
var former = map[formerField]func(path string) (message, fix string){
	{reflect.TypeFor[Pool](), "events"}: became("is now index",
		"write index: events in place of events: auto, and index: approximate in place of events: off; "+
			"index: off matches no prefixes at all"),
	{reflect.TypeFor[Pool](), "policy"}:                      poolPolicy,
	{reflect.TypeFor[Pool](), "rule"}:                        poolPolicy,
	{reflect.TypeFor[Experimental](), "pools"}:               poolPolicy,
	{reflect.TypeFor[Scoring](), "units"}:                    nowExperimental,
	{reflect.TypeFor[Scoring](), "calibration"}:              alwaysLearned,
	{reflect.TypeFor[ExperimentalScoring](), "calibration"}:  alwaysLearned,
	{reflect.TypeFor[Scoring](), "tie_absolute"}:             fixedTies,
	{reflect.TypeFor[Scoring](), "tie_relative"}:             fixedTies,
	{reflect.TypeFor[ExperimentalScoring](), "tie_absolute"}: fixedTies,
	{reflect.TypeFor[ExperimentalScoring](), "tie_relative"}: fixedTies,
	{reflect.TypeFor[Scoring](), "speed"}:                    nowExperimental,
	{reflect.TypeFor[Routers](), "interval"}:                 nowExperimental,
	{reflect.TypeFor[Scoring](), "affinity_share"}:           everyMatch,
	{reflect.TypeFor[Scoring](), "affinity_saved"}:           everyMatch,
}

var fixedTies = became("was removed",
	"leave it out: plans within 2 ms or 2 % of the best are always a tie, and one of them is drawn")

var alwaysLearned = became("was removed",
	"leave it out: learned speeds and links always count, and begin at experimental.scoring.speed "+
		"and scoring.links")

var everyMatch = became("is gone",
	"leave it out: every prefix match now counts for the time that the match saves")

// unknown explains an unknown field, and what to write instead.
func unknown(f formerField, path string) (message, fix string) {
	if was := former[f]; was != nil {
		return was(path)
	}
	if key := glued(f.key, f.of); key != "" {
		return "is not a field", gluedFix(key)
	}
	return "is not a field", didYouMean(f.key, keysOf(f.of))
}

// poolPolicy is what became of a policy and its numbers for each pool.
var poolPolicy = became("was removed",
	"write experimental: {policy: two-state} to choose the prefill replica so, with its authors' numbers; "+
		"the decode replica is chosen by costs")

func became(message, fix string) func(string) (string, string) {
	return func(string) (string, string) { return message, fix }
}

// nowExperimental is what became of the fields that went under experimental.
func nowExperimental(path string) (message, fix string) {
	return "has moved to experimental." + path, "write " + nested("experimental."+path)
}

// nested writes a path as it stands in a file.
func nested(path string) string {
	outer, inner, more := strings.Cut(path, ".")
	if !more {
		return outer + ": ..."
	}
	return outer + ": {" + nested(inner) + "}"
}
