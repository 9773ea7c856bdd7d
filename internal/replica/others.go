package replica

import (
	"math/bits"
	"time"
)

// OtherRequests counts the requests of unknown clients on a replica.
//
// A report and our own count never have exactly the same time. A request that only one report shows may be
// our own and have just ended. So Count is the smaller of the last two reports.
type OtherRequests struct {
	Count  int
	last   int
	heard  bool
	most   int // requests of ours at once, the most since the newest report that was weighed
	gaveUp int // requests of ours that ended before their answers since then: the engine may still have them
	unseen unseen
}

// unseen is the combined result of several reports about requests of others.
type unseen struct {
	newest    Load    // report that was weighed
	reports   uint32  // one bit a report, the newest lowest: whether others surely had requests there
	mean      float64 // requests of others, over some ten reports
	holds     bool
	uncounted int  // requests of ours that run there without a lease
	doubtful  bool // there was one since the newest report
}

// When requests of others are said to be there, and when no more.
const (
	weighEvery  = 1500 * time.Millisecond // least time between two reports that are weighed
	weighed     = 20                      // reports: half a minute and more
	othersFrom  = 10                      // so many weighed reports that show requests of others begin the state
	othersUntil = 4                       // at most so many such reports end the state
	leastOthers = 2                       // requests in a report
	leastShare  = 8                       // and an eighth of the reported count
)

// Note takes in how many requests a report has beyond our own. A number below zero counts as none.
func (o *OtherRequests) Note(seen int) {
	seen = max(0, seen)
	o.Count = seen
	if o.heard {
		o.Count = min(seen, o.last)
	}
	o.last, o.heard = seen, true
}

// Ours sets how many requests the engine now has from us and from known routers.
func (o *OtherRequests) Ours(n int) { o.most = max(o.most, n) }

// GaveUp records n requests of ours that ended before their answers. An engine aborts such requests a step
// or more later, so its next report may still count them.
func (o *OtherRequests) GaveUp(n int) { o.gaveUp += n }

// Uncounted records n more requests of ours (fewer if n is below 0) that [OtherRequests.Ours] leaves out.
// Reports beside such requests say nothing about others.
func (o *OtherRequests) Uncounted(n int) {
	o.unseen.uncounted = max(0, o.unseen.uncounted+n)
	o.unseen.doubtful = true
}

// Weigh takes in a scraped report, after [OtherRequests.Note]. ours is how many requests the engine now has
// from us and from known routers.
//
// A report can be older than our count. So two numbers are subtracted from a report: the most requests that
// we had there at once since the report before, and the requests that we gave up since then. The rest are
// requests of others. An engine whose core stands still repeats its report and keeps the requests that we
// gave up. So a repeated report says nothing about others.
func (o *OtherRequests) Weigh(l Load, ours int) {
	u := &o.unseen
	if l.Source != Metrics || l.Running < 0 || l.At.Sub(u.newest.At) < weighEvery {
		return
	}
	all := l.Running + max(l.Waiting, 0)
	others := min(o.Count, all-max(ours, o.most)-o.gaveUp)
	if others < leastOthers || leastShare*others < all || u.doubtful || l.repeats(&u.newest) {
		others = 0
	}
	u.add(others)
	u.newest = l
	o.most = ours
	o.gaveUp = 0
	u.doubtful = u.uncounted > 0
}

func (u *unseen) add(others int) {
	u.reports = u.reports << 1 & (1<<weighed - 1)
	if others > 0 {
		u.reports |= 1
	}
	u.mean += (float64(others) - u.mean) / 10
	switch n := bits.OnesCount32(u.reports); {
	case n >= othersFrom:
		u.holds = true
	case n <= othersUntil:
		u.holds = false
	}
}

// Unseen returns how many requests of unknown origin the replica has on average: neither ours nor of a
// router that we know. sure says that they have been there for so long that no counting error explains them.
func (o *OtherRequests) Unseen() (mean float64, sure bool) { return o.unseen.mean, o.unseen.holds }

// repeats reports whether l says the same as before, which an engine that works does not.
func (l *Load) repeats(before *Load) bool {
	return l.Running == before.Running && l.Waiting == before.Waiting && l.Usage == before.Usage &&
		l.Reads == before.Reads
}
