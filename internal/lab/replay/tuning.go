package replay

import (
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// devTime is the length of the part of a trace on which policies are tuned, if the play has no length.
const devTime = 30 * time.Minute

// DevSeed makes the plays of tuning different from the plays that judge the result.
const DevSeed = 0x646576

// Dev is p on the part for tuning: the first half of the time, with another seed. Judge a tuned policy on the
// whole time or, to be strict, on the other half.
func (p Play) Dev() Play {
	if p.For == 0 {
		p.For = 2 * devTime
	}
	p.For /= 2
	p.Seed += DevSeed
	return p
}

// RefusedTTFT is the TTFT that a refused request counts with, in seconds: the longest wait at the router
// ([cluster.Config.QueueTime]).
const RefusedTTFT = 30

// Loss is the figure that tuning minimises: the mean TTFT in seconds. A request that was refused, or ended
// with an error, counts as [RefusedTTFT].
func Loss(o *Outcome) float64 {
	lost := float64(o.Refused + o.Failed)
	return (o.TTFT.Mean*(float64(o.Measured)-lost) + RefusedTTFT*lost) / max(1, float64(o.Measured))
}

// Tune plays every form of a policy that differs in its main parameter (see [policies.Grid]). It returns the
// name of the form with the least loss, and the results. Among equal forms it takes the authors' form.
func (p Play) Tune(
	ctx context.Context, policy string, loss func(*Outcome) float64,
) (best string, tried []Outcome, err error) {
	grid, err := policies.Grid(policy)
	if err != nil {
		return "", nil, err
	}
	if len(grid) == 1 {
		return policy, nil, nil
	}
	best, _, err = policies.Best(policy, func(form string) (float64, error) {
		o, _, err := p.Once(ctx, form)
		if err != nil {
			return 0, err
		}
		tried = append(tried, *o)
		return loss(o), nil
	})
	return best, tried, err
}

// withTuned lists the policies of p. After each policy it lists the tuned form, if that differs.
func (p Play) withTuned(ctx context.Context, progress func(string, time.Duration)) ([]string, error) {
	var names []string
	for _, name := range p.Policies {
		names = append(names, name)
		if progress != nil {
			progress("tuning "+name, 0)
		}
		best, _, err := p.Dev().Tune(ctx, name, Loss)
		if err != nil {
			return nil, err
		}
		if best != name {
			names = append(names, best)
		}
	}
	return names, nil
}
