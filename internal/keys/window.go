package keys

import "time"

// slot is the resolution of a [window]. slots is the number of slots of a minute, with the running slot. An
// amount counts for a minute and at most one slot more. So a steady stream stays under a limit by less than
// 1 %, and never gets over the limit.
const (
	slot  = 500 * time.Millisecond
	slots = int64(time.Minute/slot) + 1
)

// window sums amounts over the last minute. The zero value is empty.
type window struct {
	at    int64 // number of the newest slot, counted since 1970
	sum   int64 // of all slots
	count [slots]int64
}

// turn forgets what is older than a minute. A clock that went back changes nothing.
func (w *window) turn(now time.Time) {
	at := now.UnixNano() / int64(slot)
	if at-w.at >= slots {
		*w = window{at: at}
		return
	}
	for ; w.at < at; w.at++ {
		oldest := &w.count[(w.at+1)%slots]
		w.sum -= *oldest
		*oldest = 0
	}
}

// add counts n in the newest slot and returns the number of the slot.
func (w *window) add(n int64) (slot int64) {
	w.count[w.at%slots] += n
	w.sum += n
	return w.at
}

// correct adds n, which may be negative, to the slot in which an amount was counted. A slot that is over
// takes no negative amount, because its amount counts no more. A positive amount counts in the newest slot
// then.
func (w *window) correct(slot, n int64) {
	switch {
	case w.at-slot < slots:
		w.count[slot%slots] += n
		w.sum += n
	case n > 0:
		w.add(n)
	}
}

// until is the time from now until the sum is at most limit, if nothing is added. more returns what counts
// beside the sum after a wait, and never grows with the wait.
func (w *window) until(limit int64, now time.Time, more func(wait time.Duration) int64) time.Duration {
	left := w.sum
	for i := w.at - slots + 1; i <= w.at; i++ {
		if left <= limit {
			wait := w.over(i-1, now)
			if left+more(wait) <= limit {
				return wait
			}
		}
		left -= w.in(i)
	}
	return w.over(w.at, now)
}

// amount is the sum, and how it passes if nothing is added.
func (w *window) amount(now time.Time) Amount {
	if w.sum <= 0 {
		return Amount{}
	}
	oldest := w.at - slots + 1
	for oldest < w.at && w.in(oldest) == 0 {
		oldest++
	}
	return Amount{w.sum, min(w.over(oldest, now), longest), w.all(now)}
}

// all is the time until nothing counts any more, if nothing is added.
func (w *window) all(now time.Time) time.Duration {
	if w.sum <= 0 {
		return 0
	}
	newest := w.at
	for newest > w.at-slots+1 && w.in(newest) == 0 {
		newest--
	}
	return min(w.over(newest, now), longest)
}

// in is the amount of a slot.
func (w *window) in(slot int64) int64 { return w.count[((slot%slots)+slots)%slots] }

// over is how long it takes from now until a slot counts no more.
func (w *window) over(number int64, now time.Time) time.Duration {
	return max(0, time.Unix(0, (number+slots)*int64(slot)).Sub(now))
}

// Amount is what counts in a window of a minute.
type Amount struct {
	Sum  int64         `json:"sum"`
	Next time.Duration `json:"next_ns"` // until a part counts no more
	All  time.Duration `json:"all_ns"`  // until nothing counts any more
}

// longest is how long an amount counts.
const longest = time.Duration(slots) * slot

// mostAmount bounds what is believed of another router.
const mostAmount = 1 << 50

func (a *Amount) plausible() bool {
	return a.Sum >= 0 && a.Sum < mostAmount && a.Next >= 0 && a.Next <= a.All && a.All <= longest
}

// at is what is left of an amount after a time. The amount passes evenly between Next and All.
func (a Amount) at(after time.Duration) Amount {
	switch {
	case after >= a.All:
		return Amount{}
	case after > a.Next:
		a.Sum = int64(float64(a.Sum) * float64(a.All-after) / float64(a.All-a.Next))
	}
	return Amount{a.Sum, max(0, a.Next-after), a.All - after}
}
