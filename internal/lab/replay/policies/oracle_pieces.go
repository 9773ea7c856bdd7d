package policies

import (
	"slices"
	"sort"
	"time"

	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/scoring"
)

// OracleInPieces is an [Oracle] that sends a long prompt in pieces when a decode replica computes it, as
// production does. Each replica gets one piece at a time, from the prompt with the least left.
type OracleInPieces struct {
	*Oracle
	most  float64     // seconds of a piece
	lines []pieceLine // by decode replica
}

// pieceLine holds the prompts that one replica must still compute itself.
type pieceLine struct {
	flying  *pieceTurn // the prompt whose piece the engine has now
	waiting []*pieceTurn
}

// pieceTurn is the progress of one prompt.
type pieceTurn struct {
	q    *cluster.Query
	done int // tokens of the prompt that are cached
	upto int // end of the piece that the engine has
	wake func()
}

var _ cluster.Piecer = (*OracleInPieces)(nil)

// NewOracleInPieces makes an oracle that uses the true terms with these weights. piece is the time of a
// piece.
func NewOracleInPieces(
	c cluster.Config, w scoring.Weights, piece time.Duration, seed uint64,
) *OracleInPieces {
	o := &OracleInPieces{
		Oracle: NewOracle(c, w, seed), most: piece.Seconds(),
		lines: make([]pieceLine, len(c.Nodes[cluster.Decode])),
	}
	o.pieces = o
	return o
}

// local is the state that q would find on j as a local prefill: in pieces, behind prompts with less left.
func (o *OracleInPieces) local(j int, l scoring.Local) scoring.Local {
	c := o.truth.Engine(cluster.Decode, j)
	line := &o.lines[j]
	for _, t := range line.all() {
		if rest := o.rest(t.q.Tokens, max(t.done, t.upto), &c); rest <= l.Warm {
			l.Wait += rest
		}
	}
	if n := turns.Pieces(l.Warm, o.most); n > 1 {
		l.Piece = l.Warm / float64(n)
		l.Between = float64(n-1) * o.asked.sides[cluster.Decode][j].step
	}
	return l
}

func (l *pieceLine) all() []*pieceTurn {
	if l.flying == nil {
		return l.waiting
	}
	return append([]*pieceTurn{l.flying}, l.waiting...)
}

// rest is the time that an engine needs for the rest of a prompt.
func (o *OracleInPieces) rest(tokens, done int, c *core.Config) float64 {
	return load{}.plus(tokens-done, done).seconds(c)
}

// Next gives an engine the next piece of a prompt when it has none.
func (o *OracleInPieces) Next(
	q *cluster.Query, _ time.Time, wake func(),
) (upto int, ask time.Duration) {
	j := o.placed[q.Slot].d
	line, c := &o.lines[j], o.truth.Engine(cluster.Decode, j)
	t := line.take(q)
	if t == nil {
		t = &pieceTurn{q: q, done: o.found(q, j)}
	}
	t.wake = wake
	if line.flying != nil || o.behind(line, t, &c) {
		line.waiting = append(line.waiting, t)
		o.call(j)
		return 0, time.Second
	}
	line.flying = t
	t.upto = o.piece(t, &c)
	o.truth.Expect(q, t.done)
	return t.upto, 0
}

// found is the number of cached tokens of q on j.
func (o *OracleInPieces) found(q *cluster.Query, j int) int {
	size := o.truth.Engine(cluster.Decode, j).BlockSize
	return min(o.truth.Cached(cluster.Decode, j, o.truth.Hashes(q)), (q.Tokens-1)/size) * size
}

// take removes and returns the turn of q from the waiting turns; nil if there is none.
func (l *pieceLine) take(q *cluster.Query) *pieceTurn {
	at := slices.IndexFunc(l.waiting, func(t *pieceTurn) bool { return t.q == q })
	if at < 0 {
		return nil
	}
	t := l.waiting[at]
	l.waiting = slices.Delete(l.waiting, at, at+1)
	return t
}

// behind reports whether some waiting prompt has less left than t.
func (o *OracleInPieces) behind(line *pieceLine, t *pieceTurn, c *core.Config) bool {
	own := o.rest(t.q.Tokens, t.done, c)
	return slices.ContainsFunc(line.waiting, func(x *pieceTurn) bool {
		return o.rest(x.q.Tokens, x.done, c) < own
	})
}

// call wakes the prompt with the least left on j, if the engine has no piece now.
func (o *OracleInPieces) call(j int) {
	line, c := &o.lines[j], o.truth.Engine(cluster.Decode, j)
	if line.flying != nil || len(line.waiting) == 0 {
		return
	}
	slices.MinFunc(line.waiting, func(a, b *pieceTurn) int {
		if o.rest(a.q.Tokens, a.done, &c) < o.rest(b.q.Tokens, b.done, &c) {
			return -1
		}
		return 1
	}).wake()
}

// piece is the token at which the next piece of t ends.
func (o *OracleInPieces) piece(t *pieceTurn, c *core.Config) int {
	rest := o.rest(t.q.Tokens, t.done, c)
	n := turns.Pieces(rest, o.most)
	if n == 1 {
		return t.q.Tokens
	}
	left := (t.q.Tokens - t.done) / c.BlockSize
	blocks := sort.Search(left, func(k int) bool {
		return o.rest(t.done+(k+1)*c.BlockSize, t.done, c) > rest/float64(n)
	})
	return min(t.q.Tokens, t.done+max(1, blocks)*c.BlockSize)
}

// Computed records that a piece is done.
func (o *OracleInPieces) Computed(q *cluster.Query, _ []time.Duration, _ time.Time) {
	line := &o.lines[o.placed[q.Slot].d]
	if t := line.flying; t != nil && t.q == q {
		t.done = t.upto
		line.flying, line.waiting = nil, append(line.waiting, t) // its call asks next
	}
}

// First records that a prompt on its decode replica is computed.
func (o *OracleInPieces) First(q *cluster.Query, now time.Time) {
	o.leave(q)
	o.Oracle.First(q, now)
}

// Done forgets the request.
func (o *OracleInPieces) Done(q *cluster.Query, output int, ttft, total time.Duration, now time.Time) {
	o.leave(q)
	o.Oracle.Done(q, output, ttft, total, now)
}

// leave removes q from its line.
func (o *OracleInPieces) leave(q *cluster.Query) {
	j := o.placed[q.Slot].d
	line := &o.lines[j]
	line.take(q)
	if t := line.flying; t != nil && t.q == q {
		line.flying = nil
		o.call(j)
	}
}
