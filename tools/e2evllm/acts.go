package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// act is one part of the run: a claim that must hold, tried with the engines of its fleet.
type act struct {
	name  string
	holds string // the claim that holds if the act has no error
	fleet *fleet
	play  func(context.Context, *stage) error
	asked bool // only played if it is named
}

// acts are all acts, in order; the acts of one fleet stand together.
var acts = []act{
	{
		name: "doctor", fleet: pools, play: consult,
		holds: "the doctor reports healthy engines as healthy",
	},
	{
		name: "answers", fleet: pools, play: answers,
		holds: "split answers equal the answers of one engine, and predictions are true",
	},
	{
		name: "scarcity", fleet: pools, play: scarcities,
		holds: "the same holds while blocks are evicted and requests wait, " +
			"and no ledger promises more blocks than its engine has",
	},
	{
		name: "twin", fleet: pools, play: twins,
		holds: "a simulated engine has the answers, events and metrics of a real one",
	},
	{
		name: "hostile", fleet: pools, play: hostileActs,
		holds: "hostile requests are refused or answered correctly, and harm no engine and no other client",
	},
	{
		name: "clients", fleet: pools, play: clients,
		holds: "real clients get the answers of one engine, and no lease or block is left",
	},
	{
		name: "classes", fleet: pools, play: classes,
		holds: "urgent requests go first, tenants have their shares, and each is charged what it used",
	},
	{
		name: "faults", fleet: pools, play: faults,
		holds: "while engines and the router are killed, stopped and restarted, " +
			"every answer is exact or a clear error",
	},
	{
		name: "mute", fleet: pools, play: mute,
		holds: "a prefill engine that hands nothing over costs no client an answer",
	},
	{
		name: "death", fleet: pools, play: death,
		holds: "greedy streams continue on another engine when their decode engine dies",
	},
	{
		name: "peer", fleet: pools, play: peerAnswers, asked: true,
		holds: "the answers of vllm-router before the same engines are counted beside Tandem's",
	},
	{
		name: "peer-hostile", fleet: pools, play: peerHostile, asked: true,
		holds: "the same for hostile requests",
	},
	{
		name: "path", fleet: separate, play: path, asked: true,
		holds: "a cut network path between two engines costs no client an answer",
	},
	{
		name: "ranks", fleet: ranked, play: ranks,
		holds: "a request goes to the rank that has its prefix",
	},
	{
		name: "adapters", fleet: ranked, play: adapters,
		holds: "no key is shared between adapters, tenants and the base model",
	},
	{
		name: "pieces", fleet: pacing, play: pieces,
		holds: "answers to prompts in pieces equal the answers to whole prompts",
	},
	{
		name: "mixed", fleet: mixing, play: mixed, asked: true,
		holds: "a step with a prompt beside streams takes the time of the simulator's formula",
	},
	{
		name: "hybrid", fleet: hybrids, play: hybrid,
		holds: "split answers are exact for a model with several groups of KV blocks and n-gram speculation",
	},
	{
		name: "spec", fleet: drafters, play: spec, asked: true,
		holds: "split answers are exact for a model with draft layers (MTP), " +
			"though no prompt is prefilled whole",
	},
	{
		name: "push", fleet: pushing, play: push,
		holds: "split answers are exact with NIXL push, and a decode leg that waits for blocks is rescued",
	},
	{
		name: "push-speed", fleet: facing, play: pushSpeed, asked: true,
		holds: "the time to the first token is printed, for push and for pull",
	},
	{
		name: "multi", fleet: layered, play: multi,
		holds: "split answers are exact beside a store in a MultiConnector, whose order decides if blocks move",
	},
	{
		name: "mooncake", fleet: ferrying, play: mooncake, asked: true,
		holds: "split answers are exact with Mooncake, also after a restart of the prefill engine",
	},
	{
		name: "lmcache", fleet: caching, play: lmcache, asked: true,
		holds: "split answers are exact with LMCache, also without its server and after its restart",
	},
	{
		name: "older", fleet: single, play: older,
		holds: "Tandem understands vLLM 0.20.0: events as arrays, replays, /tokenize, metrics, " +
			"whole requests",
	},
	{
		name: "between", fleet: pair, play: between,
		holds: "a pair of vLLM 0.28.0 splits requests exactly",
	},
}

// chosen are the acts with these names, separated by commas. Without names, all acts that need not be named.
func chosen(names string) ([]act, error) {
	if names == "" {
		var some []act
		for _, a := range acts {
			if !a.asked {
				some = append(some, a)
			}
		}
		return some, nil
	}
	return pickNamed(acts, names, act.called, "-only: no act")
}

func (a act) called() string { return a.name }

func actNames() string { return namesOf(acts, act.called) }

// pickNamed returns the members of all with these names, which are separated by commas. An error begins with
// what, and lists the valid names.
func pickNamed[T any](all []T, names string, called func(T) string, what string) ([]T, error) {
	var some []T
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(x T) bool { return called(x) == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has the name %q; valid names: %s", what, name, namesOf(all, called))
		}
		some = append(some, all[i])
	}
	return some, nil
}

func namesOf[T any](all []T, called func(T) string) string {
	var names []string
	for _, x := range all {
		names = append(names, called(x))
	}
	return strings.Join(names, ", ")
}

func fleetNamed(name string) (*fleet, error) {
	for _, a := range acts {
		if a.fleet.name == name {
			return a.fleet, nil
		}
	}
	return nil, fmt.Errorf("no fleet has the name %q", name)
}

// outcome is the result of an act.
type outcome struct {
	act
	took time.Duration
	err  error
}

// play plays the acts one after another, even if some fail, and prints all results.
func (s *stage) play(ctx context.Context, program []act) error {
	var done []outcome
	for _, a := range program {
		say("act: %s", a.name)
		begun := time.Now()
		err := s.want(ctx, a.fleet)
		if err == nil {
			err = errors.Join(a.play(ctx, s), s.unharmed(ctx))
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			say("act: %s FAILED: %v", a.name, err)
		}
		done = append(done, outcome{a, time.Since(begun), err})
	}
	return sum(done)
}

// unharmed returns an error for engines that have ended, or that hold blocks although no request runs.
func (s *stage) unharmed(ctx context.Context) error {
	var errs []error
	for _, e := range s.engines {
		if how := e.dead(); how != "" {
			errs = append(errs, fmt.Errorf("the engine %s ended: %s", e.Name, how))
		}
	}
	if len(errs) == 0 {
		_, err := s.awaitIdle(ctx, idleLimit)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sum prints one line per act and returns the errors.
func sum(done []outcome) error {
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	var errs []error
	for _, o := range done {
		held := "held"
		if why, is := errors.AsType[*untried](o.err); is {
			held = "NOT TRIED"
			o.holds = why.reason
			errs = append(errs, fmt.Errorf("%s: %w", o.name, o.err))
		} else if o.err != nil {
			held = "FAILED"
			errs = append(errs, fmt.Errorf("%s: %w", o.name, o.err))
		}
		fmt.Fprintf(t, "  %s\t%s\t%.0f s\t%s\n", o.name, held, o.took.Seconds(), o.holds)
	}
	_ = t.Flush()
	fmt.Println()
	return errors.Join(errs...)
}
