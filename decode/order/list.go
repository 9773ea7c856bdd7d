// Package order has two sorted structures for things that wait: a [List] of numbers with sums, and a [Heap]
// whose items know their places. Neither is safe for concurrent use.
package order

import (
	"cmp"
	"slices"
	"sort"
)

// List is a sorted list of entries. It tells how many entries lie before a number, and their weight, without
// a look at each entry: thousands may wait at one replica, and every plan asks. It is a list of short runs
// with sums, which needs no memory and no pointer for each entry. The zero List is empty.
type List struct {
	runs   []Run
	n      int
	weight int64   // of all entries; sums may wrap round, and are right if the result fits
	spare  []Entry // empty memory of the last run that went, since lists are empty now and then
}

// Run is a part of a [List], in order.
type Run struct {
	Entries []Entry // never none
	Weight  int64   // of all entries
}

// Entry is one thing in a [List].
type Entry struct {
	Key    int64
	ID     uint64 // tells entries with equal keys apart
	Weight int64
}

// mostInRun is how many entries a run may have: with ten thousand there are some hundred runs.
const mostInRun = 128

func (e Entry) compare(to Entry) int {
	return cmp.Or(cmp.Compare(e.Key, to.Key), cmp.Compare(e.ID, to.ID))
}

// Last returns the last entry of r.
func (r *Run) Last() Entry { return r.Entries[len(r.Entries)-1] }

// Len returns how many entries there are.
func (o *List) Len() int { return o.n }

// Weight returns the weight of all entries.
func (o *List) Weight() int64 { return o.weight }

// Runs returns all entries in order, for reading, until the list changes.
func (o *List) Runs() []Run { return o.runs }

// Change adds e if sign is 1. It takes e out, which is there, if sign is -1.
func (o *List) Change(e Entry, sign int) {
	if sign > 0 {
		o.add(e)
	} else {
		o.remove(e)
	}
}

// place returns where e is, or where it belongs, in a list with at least one run.
func (o *List) place(e Entry) (in *Run, at, number int) {
	number = sort.Search(len(o.runs)-1, func(i int) bool { return o.runs[i].Last().compare(e) >= 0 })
	in = &o.runs[number]
	at, _ = slices.BinarySearchFunc(in.Entries, e, Entry.compare)
	return in, at, number
}

func (o *List) add(e Entry) {
	if len(o.runs) == 0 {
		o.runs, o.spare = append(o.runs, Run{Entries: o.spare}), nil
	}
	r, at, number := o.place(e)
	r.Entries = slices.Insert(r.Entries, at, e)
	r.Weight += e.Weight
	o.n++
	o.weight += e.Weight
	if len(r.Entries) > mostInRun {
		o.split(number)
	}
}

func (o *List) split(number int) {
	r := &o.runs[number]
	half := len(r.Entries) / 2
	second := newRun(slices.Clone(r.Entries[half:]))
	r.Entries, r.Weight = r.Entries[:half], r.Weight-second.Weight
	o.runs = slices.Insert(o.runs, number+1, second)
}

func newRun(entries []Entry) Run {
	r := Run{Entries: entries}
	for _, e := range entries {
		r.Weight += e.Weight
	}
	return r
}

func (o *List) remove(e Entry) {
	r, at, number := o.place(e)
	r.Entries = slices.Delete(r.Entries, at, at+1)
	r.Weight -= e.Weight
	o.n--
	o.weight -= e.Weight
	o.join(number)
}

// join lets a run that has become short go, or go on with the next one.
func (o *List) join(number int) {
	r := &o.runs[number]
	if len(r.Entries) == 0 {
		o.spare = r.Entries
		o.runs = slices.Delete(o.runs, number, number+1)
		return
	}
	if number+1 == len(o.runs) || len(r.Entries)+len(o.runs[number+1].Entries) > mostInRun/2 {
		return
	}
	next := &o.runs[number+1]
	r.Entries = append(r.Entries, next.Entries...)
	r.Weight += next.Weight
	o.runs = slices.Delete(o.runs, number+1, number+2)
}

// Before returns how many entries lie before the first entry whose key is beyond something, and their weight.
// If one key is beyond it, all later keys must be.
func (o *List) Before(beyond func(key int64) bool) (n int, weight int64) {
	number := sort.Search(len(o.runs), func(i int) bool { return beyond(o.runs[i].Last().Key) })
	for i := range number {
		n += len(o.runs[i].Entries)
		weight += o.runs[i].Weight
	}
	if number == len(o.runs) {
		return n, weight
	}
	entries := o.runs[number].Entries
	at := sort.Search(len(entries), func(i int) bool { return beyond(entries[i].Key) })
	for _, e := range entries[:at] {
		weight += e.Weight
	}
	return n + at, weight
}
