package grid

// Plays is with how many seeds it was played.
func (l *Line) Plays() int { return 1 + len(l.Again) }

// Side is one of the compared policies.
type Side uint8

// Ours, the best fair rival in the same shape, and the best in one pool of as many replicas.
const (
	Ours Side = iota
	Rival
	Unsplit
)

// figures of a side, of every seed.
func (l *Line) figures(s Side) []*Figures {
	all := []*Figures{[]*Figures{&l.Ours, &l.Rival, &l.Unsplit}[s]}
	for i := range l.Again {
		a := &l.Again[i]
		all = append(all, []*Figures{&a.Ours, &a.Rival, &a.Unsplit}[s])
	}
	return all
}

// median over the seeds.
func (l *Line) median(s Side, of func(*Figures) float64) float64 {
	var xs []float64
	for _, f := range l.figures(s) {
		xs = append(xs, of(f))
	}
	return median(xs)
}

// collapsedShare is how much less than enough a play has when its queues grew as long as it lasted: half of
// what makes a capacity. A mean over it would tell how long it was played.
const collapsedShare = 0.5

// Collapsed counts the plays of a side in which it did not keep up.
func (l *Line) Collapsed(s Side) int {
	n := 0
	for _, f := range l.figures(s) {
		n += one01(f.Usual < collapsedShare*l.Enough)
	}
	return n
}

// ratio is the median over the seeds of our capacity over another's.
func (l *Line) ratio(of func(*Capacities) float64) float64 {
	xs := []float64{over(l.Capacity.Ours, of(&l.Capacity))}
	for i := range l.Again {
		c := &l.Again[i].Capacity
		xs = append(xs, over(c.Ours, of(c)))
	}
	return median(xs)
}

// over is a ratio that is always a number: 1 if neither side holds anything. A side that holds nothing
// counts as holding a tenth.
func over(a, b float64) float64 {
	switch {
	case b > 0:
		return min(a/b, mostOver)
	case a > 0:
		return mostOver
	}
	return 1
}

const mostOver = 10

// Ahead is our lead in good answers over the rival, with its interval over windows of all seeds; known where
// windows were kept.
func (l *Line) Ahead() (in Interval, known bool) {
	var plays []pairing
	add := func(t *Trio) {
		if t != nil {
			plays = append(plays, pairing{t.Ours, t.Rival})
		}
	}
	add(l.Windows)
	for i := range l.Again {
		add(l.Again[i].Windows)
	}
	return difference(plays)
}
