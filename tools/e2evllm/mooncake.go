package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ferrying are engines with Mooncake. One prefill engine must do: on one machine, two bootstrap servers
// cannot have the one port that Tandem's configuration names.
var ferrying = &fleet{"ferrying", func() []*engine {
	return wiredBy(ferries, []*engine{
		{Name: "p0", Role: producer, Blocks: 2 * prefillBlocks, Flags: inChunks},
		{Name: "d0", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "d1", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "ref", Blocks: 512, Flags: atOnce},
	})
}}

// mooncake compares split answers. Then clients leave, a decode engine is killed, and the prefill engine is
// restarted, which changes its id.
func mooncake(ctx context.Context, s *stage) error {
	alone := phase{
		name: "Mooncake, one at a time", local: "never", requests: pushRequests, workers: 1,
		seed: s.seed + 21000, predicted: 0.95, kinds: everyKind,
	}
	beside := alone
	beside.name, beside.workers = "Mooncake, eight at a time", 8
	beside.seed, beside.predicted = s.seed+22000, 0.9
	f := &faulting{s: s, g: newGenerator(s.seed + 23000)}
	return inOrder(ctx,
		step{"the doctor", func() error { return consult(ctx, s) }},
		step{"split answers", func() error { return s.playPhases(ctx, alone, beside) }},
		step{"faults", func() error {
			return f.playAll(ctx, "mooncake", []scene{
				{"", "clients of unstreamed answers leave", unstreamedLeft},
				{"", "decode is killed in mid-stream; prefill is restarted, with another id", bothRestart},
			})
		}},
	)
}

// unasked is the number of clients that leave unstreamed answers. For each, vLLM's decode engine asks for the
// blocks once more, and a prefill engine waits with twenty such questions at once. Without the router's
// second prefill leg, no further blocks would move until ferryTime is over.
const unasked = 24

func unstreamedLeft(ctx context.Context, f *faulting) error {
	for range unasked {
		own, leave := context.WithTimeout(ctx, time.Second)
		tell(own, f.router.front, f.completion(5*blockTokens, 800), func() {})
		leave()
	}
	one := f.launch(ctx, f.router, "after the clients have left", f.completion(5*blockTokens, 8))
	err := errors.Join(f.landAll(ctx), f.row.wantExact(), f.wantRescues(ctx, unasked/2))
	if one.fair > ferryTime/4 {
		err = errors.Join(err, fmt.Errorf("a prompt waited %.1f s for its blocks", one.took.Seconds()))
	}
	return errors.Join(err, f.after(ctx, ferryTime+2*time.Second))
}

// bothRestart kills d0 in mid-stream, and p0 while nothing is in flight. Then it starts both again.
func bothRestart(ctx context.Context, f *faulting) error {
	before, err := f.router.continued(ctx)
	if err := errors.Join(err, f.holdStreams(ctx, 3, "d0")); err != nil {
		return err
	}
	p0, d0 := f.s.engine("p0"), f.s.engine("d0")
	if err := d0.kill(); err != nil {
		return err
	}
	err = errors.Join(f.landAll(ctx), f.row.wantExact(), f.wantContinued(ctx, before), p0.kill(),
		f.s.startEngine(p0), f.s.startEngine(d0))
	return errors.Join(err, f.comeBack(ctx, 0, "p0", "d0"))
}
