package prefill

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// lessons is what requests have taught the pool about all members together. What they teach about one member
// stands in the member.
type lessons struct {
	speeds  estimate.Pool
	typical float64 // seconds of a usual request, running mean; 0 unknown
}

// speed returns the best that is known of m.
func (k *lessons) speed(m *member) estimate.Speed { return k.speeds.PrefillSpeed(&m.learned) }

// pricing returns the speed of m that a plan is priced with.
func (k *lessons) pricing(m *member, now time.Time) (s estimate.Pricing) {
	s.Speed = k.speed(m)
	k.speeds.Price(&s, &m.learned, now)
	return s
}

// booked takes in that a request of so many seconds was booked: typical is the mean over about twenty.
func (k *lessons) booked(seconds float64) {
	if k.typical == 0 {
		k.typical = seconds
		return
	}
	k.typical += (seconds - k.typical) / 20
}

// answered measures m by an answer: its uncached tokens behind cached tokens took the given time after the
// sending of the request. The prompt has left the queue before.
func (k *lessons) answered(m *member, uncached, cached int, took time.Duration, now time.Time) {
	k.speeds.Computed(&m.learned, uncached, cached, 0, took, now)
	others := m.Others.Count+m.remote.Requests > 0 || m.remote.First.EndedAfter(now.Add(-took))
	if took <= 0 || others { // others' work in between says nothing of ours
		m.learned.Spoil()
	}
	if m.queue.count == 0 {
		k.speeds.Idle(&m.learned)
	}
}

// slow says why m is slow beside the others of all, "" if it is not. known is false without enough samples.
// held says that it was slow before.
func (k *lessons) slow(m *member, all []*member, held bool) (cause string, known bool) {
	fits := make([]*estimate.DecayingFit, len(all))
	for i, o := range all {
		fits[i] = &o.learned.Fit
	}
	s := estimate.Compare(fits, m.Slot, &k.speeds.Prefills.SpeedFit,
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
