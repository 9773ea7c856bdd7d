package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/internal/why"
)

// table is a view as rows of cells.
type table struct {
	heads []string
	left  int // number of columns that are aligned to the left, beside the last one
	long  int // this column is cut where the screen is narrow; 0 for none
	rows  []row
}

// row is a line. Its cells are text; by has a number for each that is to be sorted by it, the largest first.
type row struct {
	id    string // of a request, or the name of a replica
	bad   page.Severity
	cells []string
	by    map[int]float64
}

// table returns the rows of the current view.
func (m *screen) table() table {
	switch m.view {
	case viewPairs:
		return pairs(m.newest.live)
	case viewRequests, viewRequest:
		return requests(m.newest.live)
	case viewKeys:
		return clientKeys(m.newest.live)
	case viewClasses:
		return classes(m.newest.live)
	}
	return fleet(m.newest.live)
}

// rows are the rows that the filter lets through, sorted.
func (m *screen) rows() []row {
	if m.newest.live == nil {
		return nil
	}
	all := m.table().rows
	if words := strings.Fields(strings.ToLower(m.filtering.filter)); len(words) > 0 {
		all = slices.DeleteFunc(all, func(r row) bool {
			text := strings.ToLower(strings.Join(r.cells, " ") + " " + r.id)
			return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	for i := range all {
		for j, cell := range all[i].cells {
			all[i].cells[j] = why.Plain(cell)
		}
	}
	if column := m.sorted[min(m.view, viewClasses)]; column >= 0 {
		slices.SortStableFunc(all, func(a, b row) int {
			return cmp.Or(
				cmp.Compare(b.by[column], a.by[column]), strings.Compare(a.cells[column], b.cells[column]),
			)
		})
	}
	return all
}

// fleet lists the replicas, replicas in trouble first.
func fleet(l *page.Live) table {
	t := table{heads: []string{
		"POOL", "REPLICA", "STATE", "KV", "RUNNING", "QUEUED", "OURS", "TO COMPUTE", "FREE BLOCKS", "SPEED",
		"CACHED",
	}, left: 3, long: 2}
	for i := range l.Replicas {
		r := &l.Replicas[i]
		speed := r.Speed.TokenUS
		profile := l.Profile.TokenUS
		unit := " us"
		if r.Pool == "decode" {
			speed = r.Speed.StepMS
			profile = l.Profile.StepMS
			unit = " ms"
		}
		learned := digits(speed) + unit
		if r.Speed.Samples > 0 && profile > 0 {
			learned += " x" + digits(speed/profile)
		}
		cached := -1.
		if r.Capacity > 0 {
			cached = min(1, float64(r.Indexed)/float64(r.Capacity))
		}
		t.rows = append(t.rows, row{
			id: r.Name, bad: r.Condition.Bad,
			cells: []string{
				r.Pool, withModel(r), r.Condition.Text, share(r.Usage), running(r), count(r.Waiting),
				count(r.Requests),
				count(r.Queued), count(r.Free), learned, share(cached),
			},
			by: map[int]float64{
				2: float64(r.Condition.Bad), 3: r.Usage, 4: float64(r.Running), 5: float64(r.Waiting),
				6: float64(r.Requests), 7: float64(r.Queued), 8: float64(r.Free), 9: speed, 10: cached,
			},
		})
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return cmp.Compare(b.bad, a.bad) })
	return t
}

// withModel is the name of a replica, with its model where there are several.
func withModel(r *page.Replica) string {
	if r.Model == "" {
		return r.Name
	}
	return r.Name + " (" + r.Model + ")"
}

// running says how many sequences run, and of how many at a time where that was learned.
func running(r *page.Replica) string {
	if r.MaxSequences > 0 {
		return count(r.Running) + "/" + strconv.Itoa(r.MaxSequences)
	}
	return count(r.Running)
}

// pairs lists the pairs with transfers, and the ejected pairs.
func pairs(l *page.Live) table {
	t := table{heads: []string{"FROM", "TO", "HANDOFFS", "TOKENS", "GB/S", "FAILURES", "STATE"}, left: 2}
	for _, p := range l.Pairs {
		speed := ""
		if p.Samples > 0 {
			speed = digits(p.GBps)
		}
		t.rows = append(t.rows, row{
			bad: p.Condition.Bad,
			cells: []string{
				p.Prefill, p.Decode, count(p.Sent), count(p.Tokens), speed,
				strconv.FormatFloat(p.Failures, 'f', 1, 64),
				p.Condition.Text,
			},
			by: map[int]float64{
				2: float64(p.Sent), 3: float64(p.Tokens), 4: p.GBps, 5: p.Failures,
				6: float64(p.Condition.Bad),
			},
		})
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return cmp.Compare(b.bad, a.bad) })
	return t
}

// named names a request and the client's key.
func named(r *page.Request) string {
	name := cmp.Or(r.ClientID, r.ID)
	if r.Key != "" {
		name += " of " + r.Key
	}
	return name
}

// requests lists the newest.
func requests(l *page.Live) table {
	t := table{heads: []string{
		"TIME", "REQUEST", "WENT TO", "OUTCOME", "PROMPT", "CACHED", "TTFT", "PREDICTED", "OUTPUT", "TOOK",
		"WHY",
	}, left: 4}
	for i := range l.Newest {
		r := &l.Newest[i]
		to, bad := r.Decode+" alone", page.Well
		switch {
		case r.Decode == "":
			to = "nobody"
		case r.Prefill != "":
			to = r.Prefill + " > " + r.Decode
		}
		if r.Pieces > 0 {
			to += ", " + why.Count(r.Pieces, "piece")
		}
		outcome := r.Outcome
		if r.Attempts > 1 {
			outcome += " x" + strconv.Itoa(r.Attempts)
			bad = page.Notable
		}
		if r.Outcome != "ok" {
			bad = page.Out
		}
		t.rows = append(t.rows, row{
			id: r.ID, bad: bad,
			cells: []string{
				r.Time.Local().Format("15:04:05"), named(r), to, outcome, count(r.Prompt), count(r.Cached),
				span(r.First), span(r.Predicted), count(r.Output), span(r.Total), r.Reason,
			},
			by: map[int]float64{
				0: float64(r.Time.UnixNano()), 3: float64(bad), 4: float64(r.Prompt), 5: float64(r.Cached),
				6: r.First, 7: r.Predicted, 8: float64(r.Output), 9: r.Total,
			},
		})
	}
	return t
}

// clientKeys lists the client keys that were used in the last hour, those with most tokens first.
func clientKeys(l *page.Live) table {
	t := table{heads: []string{
		"KEY", "LIMITED NOW", "REQUESTS", "PROMPT", "CACHED", "OUTPUT", "REQUESTS/H", "PROMPT/H", "CACHED/H",
		"OUTPUT/H",
	}, left: 2, long: 1}
	for i := range l.Keys {
		k := &l.Keys[i]
		r := row{cells: []string{k.Name, k.Limit()}, by: map[int]float64{1: float64(k.Minute.Refused)}}
		for _, u := range []*page.Usage{&k.Minute, &k.Hour} {
			for _, n := range []int64{u.Requests, u.Prompt, u.Cached, u.Generated} {
				r.by[len(r.cells)] = float64(n)
				r.cells = append(r.cells, count(int(n)))
			}
		}
		if k.Over != "" {
			r.bad = page.Notable
		}
		t.rows = append(t.rows, r)
	}
	return t
}

// classes lists the classes of requests, in the order of the file.
func classes(l *page.Live) table {
	t := table{heads: []string{"CLASS", "WAITING", "RUNNING", "REQUESTS", "REFUSED", "WITHIN GOALS"}, left: 1}
	for i := range l.Classes {
		c := &l.Classes[i]
		r := row{cells: []string{c.Name}, by: map[int]float64{5: c.Within()}}
		for _, n := range []int{c.Waiting, c.Running, c.Requests, c.Refused} {
			r.by[len(r.cells)] = float64(n)
			r.cells = append(r.cells, count(n))
		}
		within := "-" // nothing to be judged
		if c.Judged > 0 {
			within = share(c.Within())
		}
		r.cells = append(r.cells, within)
		if c.Refused > 0 {
			r.bad = page.Notable
		}
		t.rows = append(t.rows, r)
	}
	return t
}

func count(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

func share(x float64) string {
	if x < 0 {
		return "?"
	}
	return strconv.FormatFloat(100*x, 'f', 0, 64) + "%"
}

// digits writes x with three digits.
func digits(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

// span writes a time in milliseconds.
func span(ms float64) string {
	switch {
	case ms < 0:
		return "?"
	case ms < 1e3:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(ms/1e3, 'f', 1, 64) + " s"
}
