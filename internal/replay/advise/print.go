package advise

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"tandem/internal/replay"
)

// Print writes a row for each shape, and a verdict for each goal.
func Print(w io.Writer, a *Advice) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tfirst token, mean\tp99\ta token, p99\tlongest gap, p99\t")
	for _, v := range a.Verdicts {
		fmt.Fprintf(t, "%s goal now\tholds\t", v.Goal.Name)
	}
	fmt.Fprintln(t)
	for _, s := range a.Shapes {
		o := s.Now
		fmt.Fprintf(t, "%s\t%.2f s\t%.2f s\t%.0f ms\t%.2f s\t", s.Name, o.TTFT.Mean, o.TTFT.P99, o.TPOT.P99*1e3,
			o.Gap.P99)
		for i, v := range a.Verdicts {
			fmt.Fprintf(t, "%.1f %%\t%s\t", 100*v.Goal.kept(o), times(s.Holds[i]))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, v := range a.Verdicts {
		fmt.Fprintf(&b, "\n%s\n", a.text(i, &v))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text is a verdict in words.
func (a *Advice) text(goal int, v *Verdict) string {
	pool, best := &a.Shapes[v.Pool], &a.Shapes[v.Best]
	told := fmt.Sprintf("The %s goal (%s): ", v.Goal.Name, sloText(v.Goal.SLO))
	if v.Goal.Name == own {
		told = fmt.Sprintf("Your own goal (%s): ", sloText(v.Goal.SLO))
	}
	if v.Enough == 0 {
		return told + fmt.Sprintf("%.0f %% of the answers keep it at %s. Neither splitting nor more replicas "+
			"will help: it takes faster engines, or another goal (-slo-ttft, -slo-tpot, -slo-gap).",
			100*v.Idle, times(loadOf(-most)))
	}
	holder := pool
	if v.Splits {
		holder = best
		told += fmt.Sprintf("split, as %s. It holds %s, and one pool (%s) %s.",
			best.Name, times(best.Holds[goal]), pool.Name, times(pool.Holds[goal]))
	} else {
		told += fmt.Sprintf("do not split. One pool (%s) holds %s, and the best shape that splits (%s) %s.",
			pool.Name, times(pool.Holds[goal]), best.Name, times(best.Holds[goal]))
	}
	return told + fmt.Sprintf(" Held is where %.0f %% of the answers keep it; at %s %.0f %% do.",
		100*v.Enough, times(loadOf(-most)), 100*v.Idle) + a.size(holder.Holds[goal])
}

// size says how many replicas the traffic's own load takes, where that is not about what there are.
func (a *Advice) size(holds float64) string {
	if holds == 0 {
		return ""
	}
	wanted := int(math.Ceil(float64(a.Replicas) / holds))
	switch {
	case holds < 1:
		return fmt.Sprintf(" That is less than this load, which takes some %d replicas; ask again with "+
			"-replicas %d.", wanted, wanted)
	case wanted < a.Replicas:
		return fmt.Sprintf(" This load takes some %d of the %d replicas; ask again with -replicas %d.",
			wanted, a.Replicas, max(2, wanted))
	}
	return ""
}

func sloText(s replay.SLO) string {
	text := fmt.Sprintf("first token in %g s, %g ms a token", s.TTFT.Seconds(), s.TPOT.Seconds()*1e3)
	if s.Gap > 0 {
		text += fmt.Sprintf(", no gap above %g s", s.Gap.Seconds())
	}
	return text
}

// times tells a load.
func times(load float64) string {
	switch {
	case load == 0:
		return "no load"
	case load >= loadOf(most):
		return fmt.Sprintf("%.3gx or more", load)
	}
	return fmt.Sprintf("%.3gx", load)
}
