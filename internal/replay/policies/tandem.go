// Package policies holds the routers that replay compares: Tandem's own decision, unchanged, and the policies
// of the field with their authors' formulas.
package policies

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"tandem/decode"
	"tandem/internal/kv"
	"tandem/internal/replay/cluster"
	"tandem/internal/replica"
	"tandem/orchestrator/planner"
	"tandem/orchestrator/policy"
	"tandem/prefill"
	"tandem/scoring"
)

// Tandem is the decision that production runs: the pools, the planner, the ledgers and the index, called as
// the orchestrator calls them.
type Tandem struct {
	prefill  *prefill.Pool
	decode   *decode.Pool
	planner  *planner.Planner
	model    string
	ids      [2][]replica.ID
	decodes  map[replica.ID]int
	prefills map[replica.ID]int
	split    bool
	local    bool
	order    Order
	policy   planner.Policy
	rnd      *rand.Rand // of ties in the first step of a sequence
	sequence sequence
	every    time.Duration // between what is told to other routers
	booked   []booked      // by slot
	live     int           // requests under way
	retrying int           // of these, how many hold a place in the retry budget
	all      [2][]replica.Replica
	gone     [2][]bool
	Stats    Stats
}

// Stats count what a router did.
type Stats struct {
	Split, Local, Moved int
	NoRoom              int // tries
	Retried, Ejected    int
}

// Sum adds up what Tandem's routers did; nil if there is none among them.
func Sum(routers []cluster.Router) *Stats {
	var all *Stats
	for _, r := range routers {
		if t, ok := r.(*Tandem); ok {
			if all == nil {
				all = &Stats{}
			}
			all.Split += t.Stats.Split
			all.Local += t.Stats.Local
			all.Moved += t.Stats.Moved
			all.NoRoom += t.Stats.NoRoom
			all.Retried += t.Stats.Retried
			all.Ejected += t.Stats.Ejected
		}
	}
	return all
}

// booked is a request under way.
type booked struct {
	query *cluster.Query // whose it is
	req   planner.Request
	book  *planner.Booking
	retry attempts
}

// Options of [NewTandem]. The zero value is production's defaults.
type Options struct {
	Rule    *planner.Rule // chooses the prefill replica, in the place of costs; nil for costs
	NoLocal bool
	NoSplit bool
	Order   Order
	Tuned   *Tuned // in the place of production's weights; nil for those
}

// Tuned is what replay may set of production's weights.
type Tuned struct {
	Alpha         float64 // of prefill work; 0 for auto
	Beta          float64 // of the wait
	Gamma         float64 // of KV pressure
	Penalty       float64 // of slower tokens for others
	AffinityShare float64 // of the prompt from which on a match is followed
	Margin        float64 // share of KV that is never promised
	Piece         float64 // s of a local prefill at once, beside streams, 0 all of it
	Share         float64 // s between what routers tell each other of their bookings, 0 never
	Limit         float64 // s; a request whose first token would come later is refused, 0 never
}

func (o *Options) params() []Param {
	if o.Tuned == nil {
		p := policy.Default()
		w := p.Weights
		o.Tuned = &Tuned{
			Beta: w.Beta, Gamma: w.Gamma, Penalty: w.DecodePenalty, AffinityShare: w.AffinityShare,
			Margin: p.HeadroomMargin, Piece: p.Piece.Seconds(),
		}
	}
	t := o.Tuned
	return []Param{
		{"alpha", &t.Alpha, "weight of prefill work, 0 for what the queue asks", []float64{0, 1, 2, 4, 8, 16}},
		{"beta", &t.Beta, "weight of the wait", nil},
		{"gamma", &t.Gamma, "weight of KV pressure", nil},
		{"penalty", &t.Penalty, "weight of slower tokens for others", nil},
		{"affinity", &t.AffinityShare, "share of the prompt from which on a match is followed, or 50 ms", nil},
		{"margin", &t.Margin, "share of a decode replica's KV that is never promised", nil},
		{
			"piece", &t.Piece,
			"seconds for which a decode replica computes of a prompt at once, beside streams; 0 for all of it", nil,
		},
		{"share", &t.Share, "seconds between what several routers tell each other, 0 for never", nil},
		{
			"limit", &t.Limit,
			"seconds; a request whose first token would come later by prediction is refused, 0 for none", nil,
		},
	}
}

// apply sets the weights.
func (t *Tuned) apply(p *planner.Policy) {
	w := &p.Weights
	if t.Alpha > 0 {
		w.Alpha = scoring.Alpha{Value: t.Alpha}
	}
	w.Beta = t.Beta
	w.Gamma = t.Gamma
	w.DecodePenalty = t.Penalty
	w.AffinityShare = t.AffinityShare
	p.HeadroomMargin = t.Margin
	p.Piece = time.Duration(t.Piece * float64(time.Second))
	p.FirstToken = time.Duration(t.Limit * float64(time.Second))
}

var _ cluster.Router = (*Tandem)(nil)

// NewTandem makes the router of a fleet.
func NewTandem(c cluster.Config, o Options, seed uint64) *Tandem {
	var every float64
	p := policyOf(&c, &o)
	if o.Tuned != nil {
		every = o.Tuned.Share
	}
	t := &Tandem{
		every:   time.Duration(every * float64(time.Second)),
		prefill: prefill.New(prefill.Options{}), decode: decode.New(decode.Options{}), model: "m",
		decodes: map[replica.ID]int{}, prefills: map[replica.ID]int{},
		split: !o.NoSplit && len(c.Nodes[cluster.Prefill]) > 0, local: !o.NoLocal,
		order: o.Order, policy: p, rnd: rand.New(rand.NewPCG(seed, 0x73657175)),
	}
	now := cluster.Time(0)
	t.planner = planner.New(t.prefill, t.decode, p, rand.New(rand.NewPCG(seed, 0x74616e64)))
	for side := range t.all {
		t.all[side] = c.Replicas(cluster.Side(side))
		t.gone[side] = make([]bool, len(t.all[side]))
	}
	t.prefill.SetMembers(t.all[cluster.Prefill], now)
	t.decode.SetMembers(t.all[cluster.Decode], now)
	for i, r := range c.Replicas(cluster.Prefill) {
		t.prefill.SetTrust(r.ID, replica.Live)
		t.prefills[r.ID] = i
		t.ids[cluster.Prefill] = append(t.ids[cluster.Prefill], r.ID)
	}
	for i, r := range c.Replicas(cluster.Decode) {
		t.decode.SetTrust(r.ID, replica.Live)
		t.decodes[r.ID] = i
		t.ids[cluster.Decode] = append(t.ids[cluster.Decode], r.ID)
	}
	return t
}

// policyOf returns production's policy for a fleet, with what replay sets of it. Trials of the router's own
// are left out: the next request is the trial, which costs clients more.
func policyOf(c *cluster.Config, o *Options) planner.Policy {
	p := policy.Default()
	p.PrefillRule = o.Rule
	if o.Tuned != nil {
		o.Tuned.apply(&p)
	}
	p.KVBytesPerToken, p.Links = float64(c.TokenBytes), c.Links
	p.Ejection.Trials = false
	return p
}

// Events says that both indexes follow events.
func (t *Tandem) Events() [2]bool { return [2]bool{true, true} }

// Place plans and books.
func (t *Tandem) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for len(t.booked) <= q.Slot {
		t.booked = append(t.booked, booked{})
	}
	b := &t.booked[q.Slot]
	if b.query != q { // the one before may have given up while it waited
		t.forget(b)
		b.query = q
	}
	r := &b.retry
	b.req = planner.Request{
		Model: t.model, Tokens: q.Tokens, Exact: true, PrefillKeys: q.Keys, DecodeKeys: q.Keys, Sequences: 1,
		Class:   classOf(q),
		SplitOK: t.split && !r.alone, LocalOK: t.local || !t.split, Waited: now.Sub(q.At),
		AvoidPrefill: r.avoid[cluster.Prefill], AvoidDecode: r.avoid[cluster.Decode], Pieces: true,
	}
	if r.tries == 0 {
		t.first(b, q, now)
	}
	book, err := t.search(b, now)
	// Later on every replica that has not failed the request may stand in, as in production.
	b.req.AvoidPrefill, b.req.AvoidDecode = r.avoid[cluster.Prefill], r.avoid[cluster.Decode]
	if err != nil {
		t.Stats.NoRoom++
		if late := (*planner.TooLate)(nil); errors.As(err, &late) || final(b, err) {
			t.lost(b, now)
			return 0, cluster.Refuse, false
		}
		return 0, 0, false
	}
	b.book = book
	r.tries++
	t.live++
	d = t.decodes[book.Decode.ID]
	if book.Mode == planner.Local {
		t.Stats.Local++
		return -1, d, true
	}
	t.Stats.Split++
	return t.prefills[book.Prefill.ID], d, true
}

// Answered ends the prefill lease.
func (t *Tandem) Answered(q *cluster.Query, cached int, took time.Duration, now time.Time) {
	book := t.booked[q.Slot].book
	t.planner.PrefillDone(book, cached, took, now)
	t.planner.Prefilled(book, now)
}

// Bind looks at the decode choice again.
func (t *Tandem) Bind(q *cluster.Query, now time.Time) int {
	b := &t.booked[q.Slot]
	moved, err := t.planner.Rebind(b.book, &b.req, now)
	if moved && err == nil {
		t.Stats.Moved++
	}
	return t.decodes[b.book.Decode.ID]
}

var _ cluster.Piecer = (*Tandem)(nil)

// Next says what of a prompt its decode replica gets next.
func (t *Tandem) Next(q *cluster.Query, now time.Time) (upto int) {
	return t.booked[q.Slot].book.DecodeLease.Next(now, nil).Upto
}

// Computed tells that a piece of a prompt is done.
func (t *Tandem) Computed(q *cluster.Query, now time.Time) {
	t.booked[q.Slot].book.DecodeLease.Computed(true, now)
}

// First tells of the first token.
func (t *Tandem) First(q *cluster.Query, now time.Time) {
	b := &t.booked[q.Slot]
	book := b.book
	t.planner.OwnAll(b.retry.faults, now)
	b.retry.faults = nil
	t.planner.FirstToken(book, now)
	t.planner.Decoding(book, now)
	if book.Mode == planner.Split {
		t.planner.Moved(book, now)
	}
}

// Done ends the booking.
func (t *Tandem) Done(q *cluster.Query, output int, ttft, total time.Duration, now time.Time) {
	b := &t.booked[q.Slot]
	t.planner.Finish(b.book, q.Tokens, output, ttft, total, now)
	t.live--
	t.forget(b)
}

// Apply feeds the index of a side.
func (t *Tandem) Apply(side cluster.Side, i int, b *kv.Batch) {
	if side == cluster.Prefill {
		t.prefill.Apply(t.ids[side][i], b)
		return
	}
	t.decode.Apply(t.ids[side][i], b)
}

// Observe feeds a load report.
func (t *Tandem) Observe(side cluster.Side, i int, l replica.Load, now time.Time) {
	if side == cluster.Prefill {
		t.prefill.Observe(t.ids[side][i], l, now)
		return
	}
	t.decode.Observe(t.ids[side][i], l, now)
}

var _ cluster.Sharer = (*Tandem)(nil)

// told is what one router tells others.
type told struct {
	prefill []prefill.PeerLoad
	decode  []decode.PeerLoad
}

// ShareEvery is how often others are told.
func (t *Tandem) ShareEvery() time.Duration { return t.every }

// Share tells of all bookings.
func (t *Tandem) Share(now time.Time) any {
	return told{t.prefill.PeerLoads(now), t.decode.PeerLoads(now)}
}

// Hear takes in what another router told.
func (t *Tandem) Hear(from int, said any, now time.Time) {
	other := said.(told)
	t.prefill.MergePeer(strconv.Itoa(from), other.prefill, now)
	t.decode.MergePeer(strconv.Itoa(from), other.decode, now)
}

// Tick drops guesses that were not confirmed.
func (t *Tandem) Tick(now time.Time) {
	t.prefill.Expire(now)
	t.decode.Expire(now)
}
