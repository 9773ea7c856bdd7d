package orchestrator

import (
	"cmp"
	"time"

	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
)

// classTable returns the table of the classes of cfg; nil if cfg has none.
func classTable(cfg *config.Config) *classes.Table {
	list := make([]classes.Class, len(cfg.Classes))
	for i := range cfg.Classes {
		c := &cfg.Classes[i]
		m := &c.Match
		refuse := time.Duration(c.Refuse)
		if c.Refuse == config.Never {
			refuse = classes.Never
		}
		list[i] = classes.Class{
			Name: c.Name, Rank: c.Rank,
			Goals: classes.Goals{
				TTFT: time.Duration(c.TTFT), TPOT: time.Duration(c.TPOT), Deadline: time.Duration(c.Deadline),
			},
			Refuse: refuse,
			Match: classes.Match{
				Keys: m.Keys, Models: m.Models, Paths: m.Paths, Header: m.Header.Name, Value: m.Header.Value,
			},
		}
	}
	return classes.NewTable(list)
}

// longestName is how many bytes the name of a class may have.
const longestName = 64

// classify gives a request for a model its class. If the client named an alias, the alias counts instead of
// the model. Without a parsed body, service_tier and priority do not count.
func classify(q *request, model string, body *openai.Request) {
	q.flow = flowOf(q.key, q.r.Header, q.start)
	if q.classes == nil {
		return
	}
	ask := classes.Request{Model: cmp.Or(q.alias, model), Path: q.path, Header: q.r.Header.Get}
	if body != nil {
		ask.Tier = body.Tier(longestName)
	}
	if k := q.key; k != nil {
		if len(k.Classes) > 0 {
			ask.Priority = priorityOf(q.r.Header, body)
		}
		ask.Client = classes.Client{Known: true, Key: k.Name, Class: k.Class, May: k.Classes}
	}
	q.class, q.goals = q.classes.Of(&ask)
}

// className returns the name of the request's class; "" without classes.
func (o *origin) className() string {
	if o.class == nil {
		return ""
	}
	return o.class.Name
}

// judged says whether an answer that ended well kept the goals of its request. The pace is not judged for
// several samples, or if the tokens of the answer were not counted.
func judged(j *job) string {
	if j.origin.goals == (classes.Goals{}) {
		return ""
	}
	goals, r := j.origin.goals, j.rec
	span := func(ms float64) time.Duration { return time.Duration(ms * 1e6) }
	if r.Samples > 0 || r.Output == 0 {
		goals.TPOT = 0
	}
	return goals.Judge(span(r.Phases.First), span(r.Phases.Total), r.Output)
}
