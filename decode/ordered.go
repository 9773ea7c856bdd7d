package decode

import (
	"cmp"
	"slices"
	"sort"
)

// ordered is entries of leases in the order of a number, so that how many lie before another number, and what
// they weigh together, is known without a look at each: thousands may wait at one replica, and every plan
// asks. It is a list of short runs whose sums are kept, which needs neither memory nor a pointer for an
// entry. The zero value is empty.
type ordered struct {
	runs   []run
	n      int
	weight int64   // of all; sums may wrap round, and are right where what is asked for fits
	spare  []entry // empty memory of the last run that went, since orders are empty now and then
}

type run struct {
	entries []entry // never none
	weight  int64
}

// entry is one lease in an order.
type entry struct {
	key    int64
	id     uint64 // of the lease: there may be several with one key
	weight int64
}

// mostInRun is how many entries a run may have: with ten thousand there are some hundred runs.
const mostInRun = 128

func (e entry) compare(to entry) int {
	return cmp.Or(cmp.Compare(e.key, to.key), cmp.Compare(e.id, to.id))
}

func (r *run) last() entry { return r.entries[len(r.entries)-1] }

// place returns where e is, or where it belongs, in a list with at least one run.
func (o *ordered) place(e entry) (in *run, at, number int) {
	number = sort.Search(len(o.runs)-1, func(i int) bool { return o.runs[i].last().compare(e) >= 0 })
	in = &o.runs[number]
	at, _ = slices.BinarySearchFunc(in.entries, e, entry.compare)
	return in, at, number
}

func (o *ordered) add(e entry) {
	if len(o.runs) == 0 {
		o.runs, o.spare = append(o.runs, run{entries: o.spare}), nil
	}
	r, at, number := o.place(e)
	r.entries = slices.Insert(r.entries, at, e)
	r.weight += e.weight
	o.n++
	o.weight += e.weight
	if len(r.entries) > mostInRun {
		o.split(number)
	}
}

func (o *ordered) split(number int) {
	r := &o.runs[number]
	half := len(r.entries) / 2
	second := newRun(slices.Clone(r.entries[half:]))
	r.entries, r.weight = r.entries[:half], r.weight-second.weight
	o.runs = slices.Insert(o.runs, number+1, second)
}

func newRun(entries []entry) run {
	r := run{entries: entries}
	for _, e := range entries {
		r.weight += e.weight
	}
	return r
}

// remove takes out e, which is there.
func (o *ordered) remove(e entry) {
	r, at, number := o.place(e)
	r.entries = slices.Delete(r.entries, at, at+1)
	r.weight -= e.weight
	o.n--
	o.weight -= e.weight
	o.join(number)
}

// join lets a run that has become short go, or go on with the next one.
func (o *ordered) join(number int) {
	r := &o.runs[number]
	if len(r.entries) == 0 {
		o.spare = r.entries
		o.runs = slices.Delete(o.runs, number, number+1)
		return
	}
	if number+1 == len(o.runs) || len(r.entries)+len(o.runs[number+1].entries) > mostInRun/2 {
		return
	}
	next := &o.runs[number+1]
	r.entries = append(r.entries, next.entries...)
	r.weight += next.weight
	o.runs = slices.Delete(o.runs, number+1, number+2)
}

// before returns how many entries lie before the first whose key is beyond something, and what they weigh
// together. Of the keys behind one that is beyond it all are.
func (o *ordered) before(beyond func(key int64) bool) (n int, weight int64) {
	number := sort.Search(len(o.runs), func(i int) bool { return beyond(o.runs[i].last().key) })
	for i := range number {
		n += len(o.runs[i].entries)
		weight += o.runs[i].weight
	}
	if number == len(o.runs) {
		return n, weight
	}
	entries := o.runs[number].entries
	at := sort.Search(len(entries), func(i int) bool { return beyond(entries[i].key) })
	for _, e := range entries[:at] {
		weight += e.weight
	}
	return n + at, weight
}
