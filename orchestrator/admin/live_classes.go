package admin

import (
	"net/http"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/page"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// liveClasses counts requests by class. Classes that are not in the file come last.
func liveClasses(
	file []config.Class, now []observe.InFlight, kept []*observe.Record, at time.Time,
) (all []page.Class) {
	for i := range file {
		all = append(all, page.Class{Name: file[i].Name})
	}
	of := func(name string) *page.Class {
		i := slices.IndexFunc(all, func(c page.Class) bool { return c.Name == name })
		if i < 0 {
			all, i = append(all, page.Class{Name: name}), len(all)
		}
		return &all[i]
	}
	for i := range now {
		switch r := &now[i]; {
		case r.Class == "": // it is still being read
		case r.Decode == "":
			of(r.Class).Waiting++
		default:
			of(r.Class).Running++
		}
	}
	for _, r := range kept {
		if r.Class == "" || r.Ago(at) > time.Minute {
			continue
		}
		c := of(r.Class)
		c.Requests++
		if r.Status == http.StatusTooManyRequests {
			c.Refused++
		}
		if r.Goals != "" {
			c.Judged++
		}
		if r.Goals == classes.Kept {
			c.Kept++
		}
	}
	return all
}
