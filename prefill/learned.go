package prefill

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// lessons is what requests have taught the pool about all members together, for each base model. What they
// teach about one member stands in the member.
type lessons struct {
	estimate.Models[usual]
}

// lesson is what was learned of the members with one base model.
type lesson = estimate.ModelPool[usual]

// usual is the usual request to members with one base model.
type usual struct {
	seconds float64 // running mean of what it takes; 0 unknown
}

// of returns the lesson of m's base model. A member that has another one now is not as fast as it was.
func (k *lessons) of(m *member) *lesson {
	if base := m.R.Base(); m.lesson == nil || m.lesson.Base != base {
		if m.lesson != nil {
			m.learned = estimate.Prompts{}
		}
		m.lesson = k.About(base)
	}
	return m.lesson
}

// asked returns the lesson for requests of a model, which serves[i] of all members answer for.
func (k *lessons) asked(all []*member, serves []bool) *lesson {
	if at := slices.Index(serves, true); at >= 0 {
		return k.of(all[at])
	}
	return k.About("")
}

// speed returns the best that is known of m.
func (k *lessons) speed(m *member) estimate.Speed { return k.of(m).PrefillSpeed(&m.learned) }

// pricing returns the speed of m that a plan is priced with, by the lesson of its base model.
func (m *member) pricing(of *lesson, now time.Time) (s estimate.Pricing) {
	s.Speed = of.PrefillSpeed(&m.learned)
	of.Price(&s, &m.learned, now)
	return s
}

// booked takes in that a request of so many seconds was booked: the usual request is the mean over about
// twenty.
func (u *usual) booked(seconds float64) {
	if u.seconds == 0 {
		u.seconds = seconds
		return
	}
	u.seconds += (seconds - u.seconds) / 20
}

// answered measures the replica of l by its answer: uncached tokens behind cached tokens took the given time
// after the sending of the request. The prompt has left the queue before.
func (k *lessons) answered(l *Lease, uncached, cached int, took time.Duration, now time.Time) {
	m := l.member
	of := k.of(m)
	if l.reads != nil && cached >= l.matched {
		of.HasRead(&m.learned, l.reads, took.Seconds(), now)
	}
	paused := cached >= l.matched && of.Pauses(&m.learned, l.reads, now)
	of.Computed(&m.learned, uncached, cached, 0, took, now)
	others := m.Others.Count+m.remote.Requests > 0 || m.remote.First.EndedAfter(now.Add(-took))
	if took <= 0 || others || paused { // others' work in between says nothing of ours
		m.learned.Spoil()
	}
	if m.queue.count == 0 {
		of.Idle(&m.learned)
	}
}

// slow says why m is slow beside the others of all with its model, "" if it is not. known is false without
// enough samples. held says that it was slow before.
func (k *lessons) slow(m *member, all []*member, held bool) (cause string, known bool) {
	all = slices.DeleteFunc(slices.Clone(all), func(o *member) bool { return k.of(o) != k.of(m) })
	fits := make([]*estimate.DecayingFit, len(all))
	for i, o := range all {
		fits[i] = &o.learned.Fit
	}
	s := estimate.Compare(fits, slices.Index(all, m), &k.of(m).Prefills.SpeedFit,
		estimate.DefaultSpeed().PrefillParts(estimate.UsualTokens, 0))
	if s.IsSlow(held) {
		return fmt.Sprintf("its prefills take %.1f times as long as those of %s",
			s.Ratio, all[s.Than].R.ID), true
	}
	return "", s.Known
}

// gaveUp says that a prompt left the queue of m without an answer.
func (m *member) gaveUp() { m.learned.GaveUp(m.queue.count == 0) }

// doubtful reports whether m, which has nothing to do, has answered nothing lately.
func (m *member) doubtful(now time.Time) bool { return estimate.InDoubt(m.learned.Last(), now) }
