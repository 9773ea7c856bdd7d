package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the outcome of one check of one subject.
type Status string

// These are the outcomes. Only Failed makes a fleet unfit. A Warning has a cost, and Skipped means that
// nothing is known.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is the result of one check for one subject.
type Finding struct {
	Check   string `json:"check"`   // stable id
	Subject string `json:"subject"` // a server, a data-parallel rank of one, or "fleet"
	Status  Status `json:"status"`
	// The finding, good or bad; for Skipped, the finding that was not checked.
	Title   string `json:"title"`
	Seen    string `json:"seen"`         // the evidence; for Skipped, why there is none
	Why     string `json:"why,omitzero"` // why it matters, unless OK or Skipped
	Do      string `json:"do,omitzero"`  // what to do about it, unless OK or Skipped
	after   string // Skipped: the check that prevented this one
	blocked bool   // checks that need this check cannot be judged
}

// Report has all findings, in the order of servers and checks. Findings about the fleet come last.
type Report struct {
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	// The time was over before the end: missing evidence counts as absent.
	TimeUp   bool      `json:"time_up"`
	Passive  bool      `json:"passive"` // no completion was sent
	Engines  []Engine  `json:"engines"`
	Findings []Finding `json:"findings"`
	Count    Count     `json:"count"`
}

// Engine is one server that was examined.
type Engine struct {
	Name    string `json:"name"` // as in Finding.Subject
	URL     string `json:"url"`
	Version string `json:"version,omitzero"`
	Model   string `json:"model,omitzero"`
	Ranks   int    `json:"ranks"`
}

// Count has the number of findings of each status.
type Count struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failed   int `json:"failed"`
	Skipped  int `json:"skipped"`
}

// Fit reports whether nothing failed.
func (r *Report) Fit() bool { return r.Count.Failed == 0 }

// check is one row of the table. One of server, rank and fleet judges; the others are nil.
type check struct {
	id      string // stable: the name of the trouble
	title   string // the finding if all is well
	trouble string // the finding if not
	why     string // what the trouble costs
	sends   bool   // needs completions, so it is skipped if passive
	needs   []string

	server func(*server) verdict
	rank   func(*rank) verdict
	fleet  func(*fleet) verdict
}

// verdict is the result of a check for one subject.
type verdict struct {
	status Status
	seen   string
	do     string
	stop   bool // checks that need this check have nothing to judge, though it did not fail
}

func fine(seen string, args ...any) verdict {
	return verdict{status: OK, seen: fmt.Sprintf(seen, args...)}
}

func skip(seen string, args ...any) verdict {
	return verdict{status: Skipped, seen: fmt.Sprintf(seen, args...)}
}

func warn(do, seen string, args ...any) verdict {
	return verdict{status: Warning, seen: fmt.Sprintf(seen, args...), do: do}
}

func fail(do, seen string, args ...any) verdict {
	return verdict{status: Failed, seen: fmt.Sprintf(seen, args...), do: do}
}

func (v verdict) andStop() verdict {
	v.stop = true
	return v
}

// table returns all checks; each comes after the checks that it needs.
func table() []check {
	return slices.Concat(engineChecks(), eventChecks(), fleetChecks(), handoffChecks())
}

// judge makes all checks for every subject.
func (f *fleet) judge() []Finding {
	var all []Finding
	for _, s := range f.servers {
		known := map[string]Finding{}
		for _, c := range table() {
			if c.server != nil {
				known[c.id] = c.find(s.name, known, f.passive, func() verdict { return c.server(s) })
				all = append(all, known[c.id])
			}
		}
		for _, r := range s.ranks {
			all = append(all, r.judge(known)...)
		}
	}
	known := map[string]Finding{}
	for _, c := range table() {
		if c.fleet != nil {
			known[c.id] = c.find("fleet", known, f.passive, func() verdict { return c.fleet(f) })
			all = append(all, known[c.id])
		}
	}
	return all
}

// find checks one subject, unless an earlier check prevents it.
func (c *check) find(subject string, known map[string]Finding, passive bool, judge func() verdict) Finding {
	f := Finding{Check: c.id, Subject: subject, Title: c.title}
	for _, id := range c.needs {
		if known[id].blocked {
			f.Status = Skipped
			f.after = root(known, id)
			f.blocked = true
			f.Seen = "cannot be told because of " + f.after
			return f
		}
	}
	if c.sends && passive {
		f.Status = Skipped
		f.Seen = "needs a completion, and this examination sends none"
		f.blocked = true
		return f
	}
	v := judge()
	f.Status, f.Seen = v.status, v.seen
	f.blocked = v.stop || v.status == Failed || v.status == Skipped
	if v.status == Warning || v.status == Failed {
		f.Title = c.trouble
		f.Why = c.why
		f.Do = v.do
	}
	return f
}

// root follows failed checks to the first cause.
func root(known map[string]Finding, id string) string {
	for known[id].after != "" {
		id = known[id].after
	}
	return id
}

func newReport(f *fleet, began time.Time, took time.Duration, timeUp bool) *Report {
	r := &Report{Started: began.UTC(), Took: took, TimeUp: timeUp, Passive: f.passive, Findings: f.judge()}
	for _, s := range f.servers {
		r.Engines = append(r.Engines,
			Engine{Name: s.name, URL: s.url, Version: s.seen.version, Model: s.seen.model.ID, Ranks: len(s.ranks)})
	}
	for _, x := range r.Findings {
		switch x.Status {
		case OK:
			r.Count.OK++
		case Warning:
			r.Count.Warnings++
		case Failed:
			r.Count.Failed++
		default:
			r.Count.Skipped++
		}
	}
	return r
}

// list joins things with commas.
func list[T any](all []T) string {
	var b strings.Builder
	for i, x := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}
