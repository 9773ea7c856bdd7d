package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// servedHere returns the names of models for which a client may ask: the first few of many.
func servedHere(of *fleet.Fleet) string {
	var names []string
	for _, e := range of.Endpoints() {
		names = append(names, e.Member.Facts.Models...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 8
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// noneIn says why a pool has no replica for a request of model. Names of replicas, which may be addresses,
// are only for the log.
func noneIn(of *fleet.Fleet, pool, model string) string {
	if pool == "pair" {
		return "No prefill and decode replica for the model `" + model + "` can work together on this request."
	}
	var all, up, serve, both int
	for _, w := range of.Watchers() {
		if w.Role().String() != pool {
			continue
		}
		serves := slices.ContainsFunc(w.Members(), func(m replica.Replica) bool { return m.Serves(model) })
		all++
		if w.Up() {
			up++
		}
		if serves {
			serve++
		}
		if serves && w.Up() {
			both++
		}
	}
	switch {
	case all == 0:
		return "The " + pool + " pool has no replicas."
	case up == 0:
		return eachOf(all, pool, "") + " is unreachable."
	case serve == 0:
		return "The model `" + model + "` is served by no " + pool + " replica."
	case both == 0:
		return eachOf(serve, pool, model) + " is unreachable."
	}
	return eachOf(both, pool, model) +
		" and can be reached is ejected, asleep, drained, or was tried for this request already."
}

// serves reports whether a known replica, healthy or not, serves model. It returns true while no models are
// known.
func serves(of *fleet.Fleet, model string) bool {
	known := of.Endpoints()
	for _, r := range known {
		if r.Member.Serves(model) {
			return true
		}
	}
	return len(known) == 0
}

// usable reports whether a request for model can be served now: by a decode replica that may also compute
// prompts, or by one replica of each pool. Draining, sleeping and unreachable replicas do not count.
func usable(of *fleet.Fleet, model, local string) bool {
	prefill, decode := local != config.LocalNever, false
	for _, e := range of.Endpoints() {
		if e.Up() && !e.Asleep() && !e.Member.Draining && e.Member.Serves(model) {
			prefill = prefill || e.Member.Role == replica.Prefill
			decode = decode || e.Member.Role == replica.Decode
		}
	}
	return prefill && decode
}

// eachOf names the n replicas of a pool that serve a model, or all n replicas of the pool for the model "".
func eachOf(n int, pool, model string) string {
	text := "The only " + pool + " replica"
	if n > 1 {
		text = fmt.Sprintf("Each of the %d %s replicas", n, pool)
	}
	switch {
	case model == "":
		return text
	case n > 1:
		return text + " that serve the model `" + model + "`"
	}
	return text + " that serves the model `" + model + "`"
}
