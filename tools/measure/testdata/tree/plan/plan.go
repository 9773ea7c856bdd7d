// Package plan plans.
package plan

// Pool is documented; its doc counts for it alone.
type Pool struct {
	Size, Free int
	members    map[string]int // who is in it
	Limits
}

type Limits struct{ Most, Least int } // exported fields alone: no state

const (
	First  = iota // documented behind
	Second        // so is this
	Third
)

// Take has an assignment to three.
func (p *Pool) Take(n int) (int, bool) {
	a, b, c := n, p.Size, p.Free
	// A comment of its own line.
	a, b = b, a
	return a + b + c, true
}

func (p *Pool) Give(n int) { p.Free += n }

func (p Pool) unseen() string {
	return `a raw string
on two lines and something to make one of them wider than a hundred columns, which is what this is all about`
}

func Free() {}
