package advise

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// Print writes a row for each shape, and a verdict for each goal.
func Print(w io.Writer, a *Advice) error {
	var b strings.Builder
	if a.Partial {
		fmt.Fprintf(&b, "Stopped early: these are %d shapes, and others may hold more.\n\n", len(a.Shapes))
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tfirst token, mean\tp99\ttime a token, p99\tlongest gap, p99\t")
	for _, v := range a.Verdicts {
		fmt.Fprintf(t, "keep the %s goal\tload held\t", v.Goal.Name)
	}
	fmt.Fprintln(t)
	for _, s := range a.Shapes {
		o := s.Now
		fmt.Fprintf(t, "%s\t%.2f s\t%.2f s\t%.0f ms\t%.2f s\t", s.Name, o.TTFT.Mean, o.TTFT.P99, o.TPOT.P99*1e3,
			o.Gap.P99)
		for i, v := range a.Verdicts {
			fmt.Fprintf(t, "%.1f %%\t%s\t", 100*v.Goal.kept(o), times(s.Holds[i].Load))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range a.Verdicts {
		fmt.Fprintf(&b, "\n%s\n", a.text(i))
	}
	if len(a.Verdicts) == 0 {
		fmt.Fprint(&b, "\nNo verdict: it takes one pool and a shape that splits.\n")
	}
	if n := a.Shapes[0].Now.Measured; n < fewAnswers {
		fmt.Fprintf(&b, "\nOnly %d answers are counted at this load: all of this may be chance. Play more of the "+
			"traffic (--for, or a longer trace).\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fewAnswers are too few to distinguish 90 % from 87 %.
const fewAnswers = 300

// text returns a verdict in words.
func (a *Advice) text(goal int) string {
	v := &a.Verdicts[goal]
	pool, best := &a.Shapes[v.Pool], &a.Shapes[v.Best]
	told := fmt.Sprintf("The %s goal (%s): ", v.Goal.Name, sloText(v.Goal.SLO))
	if v.Goal.Name == own {
		told = fmt.Sprintf("Your own goal (%s): ", sloText(v.Goal.SLO))
	}
	one := fmt.Sprintf("one pool (%s) holds %s", pool.Name, pool.Holds[goal].text())
	two := fmt.Sprintf("the best shape that splits (%s) %s", best.Name, best.Holds[goal].text())
	switch v.Answer {
	case Hopeless:
		return told + fmt.Sprintf("out of reach. %.0f %% of the answers keep it at %s, when nobody waits. "+
			"It takes faster engines or another goal (--slo-ttft, --slo-tpot, --slo-gap), not more replicas.",
			100*v.Idle, times(loadOf(-most)))
	case Beyond:
		return told + fmt.Sprintf("every load that was tried is held, in one pool (%s) and split (%s): nothing "+
			"here needs splitting. Ask with fewer --replicas, or with a larger --scale.", pool.Name, best.Name)
	case Split:
		told += fmt.Sprintf("split, as %s: it holds %s, and one pool (%s) %s. ",
			best.Name, best.Holds[goal].text(), pool.Name, pool.Holds[goal].text())
		if pool.Holds[goal].Low >= 1 {
			told += "This load one pool holds, too. "
		}
		return told + v.held() + a.size(best.Holds[goal].Load)
	case Close:
		told += "too close to tell, so do not split: "
	case Pool:
		told += "do not split: "
	}
	return told + fmt.Sprintf("%s, and %s. ", one, two) + v.held() + a.size(pool.Holds[goal].Load)
}

// held explains when a load counts as held.
func (v *Verdict) held() string {
	if v.Enough < replay.OfIdle*v.Idle {
		return fmt.Sprintf("A load is held where %.0f %% of the answers keep the goal.", 100*v.Enough)
	}
	return fmt.Sprintf("A load is held where %.0f %% of the answers keep the goal: when hardly anything comes "+
		"(%s) %.0f %% do, of which 95 %% are asked for.", 100*v.Enough, times(loadOf(-most)), 100*v.Idle)
}

// size says if the traffic's own load needs more replicas, or fewer.
func (a *Advice) size(holds float64) string {
	if holds == 0 {
		return ""
	}
	wanted := int(math.Ceil(float64(a.Replicas) / holds))
	switch {
	case holds < 1:
		return fmt.Sprintf(" This load is more than that: it takes some %d replicas.", wanted)
	case holds >= muchMore && wanted >= 2:
		return fmt.Sprintf(" Fewer replicas may do for this load: ask again with --replicas %d.", wanted)
	}
	return ""
}

// muchMore is the multiple of the load that a fleet must hold before a smaller fleet is proposed.
const muchMore = 2

func sloText(s replay.SLO) string {
	text := fmt.Sprintf("first token in %g s, %g ms a token", s.TTFT.Seconds(), s.TPOT.Seconds()*1e3)
	if s.Gap > 0 {
		text += fmt.Sprintf(", no gap above %g s", s.Gap.Seconds())
	}
	return text
}

// text is a load with its range.
func (h Held) text() string {
	switch {
	case h.Load == 0 || h.Load >= loadOf(most):
		return times(h.Load)
	case h.Low == 0:
		return fmt.Sprintf("%s (at most %s)", times(h.Load), times(h.High))
	}
	return fmt.Sprintf("%s (%s to %s)", times(h.Load), times(h.Low), times(h.High))
}

// times returns a load in words.
func times(load float64) string {
	switch {
	case load == 0:
		return "no load"
	case load == loadOf(-most):
		return "an eighth of this load"
	case load >= loadOf(most):
		return fmt.Sprintf("%.2gx or more", load)
	}
	return fmt.Sprintf("%.2gx", load)
}
