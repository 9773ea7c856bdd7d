package suite

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// rivalsKept is how many baselines are left for the long plays: those that were best on the short ones.
const rivalsKept = 4

// dev is the play that the baselines of a cell are tuned on: half of the time, another seed, and a load that
// the best of them just hold.
func (c cell) dev() Setting {
	if c.Workload == Conversation {
		c.Load = guessOthers * 0.9 * c.size()
	}
	s := c.setting("")
	s.Span, s.Seed = s.Span/2, replay.DevSeed
	return s
}

// rivals are the baselines that a cell is compared with: every one of the field is played with each value of
// its main parameter on the cell's dev play, as carefully as ours, which is left at its defaults. The best
// few stay, each with its best value and with its authors'.
func (l *lab) rivals(ctx context.Context, dev Setting, f figure) ([]string, error) {
	return l.tunings.get(dev, func() ([]string, error) { return l.tune(ctx, dev, f, policies.Baselines()) })
}

// tuned is a baseline with its best value.
type tuned struct {
	name, form string
	loss       float64
}

func (l *lab) tune(ctx context.Context, dev Setting, f figure, names []string) ([]string, error) {
	all := make([]tuned, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { all[i], errs[i] = l.tuneOne(ctx, dev, f, name) })
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(all,
		func(a, b tuned) int { return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(a.form, b.form)) })
	var forms []string
	for i, t := range all {
		l.say("tuned on %v %s: %2d. %s, %.3g", dev.Workload, dev.Cluster, i+1, t.form, t.loss)
		if i < rivalsKept {
			forms = append(forms, t.form)
			if t.form != t.name {
				forms = append(forms, t.name)
			}
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms), nil
}

func (l *lab) tuneOne(ctx context.Context, dev Setting, f figure, name string) (tuned, error) {
	form, loss, err := policies.Best(name, func(form string) (float64, error) {
		r, err := l.run(ctx, dev.with(form))
		if err != nil {
			return 0, err
		}
		return value(f, []*Trial{r}), nil
	})
	return tuned{name, form, loss}, err
}
