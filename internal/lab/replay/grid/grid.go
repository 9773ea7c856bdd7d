// Package grid compares the decision with its fair rivals over a random grid of cells: kinds of traffic,
// shapes of a fleet, caches, step budgets and loads. The load of a cell is a share of the best rival's
// capacity, so that neither side has chosen the load.
package grid

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Ground is a set of cells that differ only in their loads. Its capacities are found once.
type Ground struct {
	Kind  string
	Blind bool // of the kind
	Shape string
	Cache float64
	Step  int
	// Loads of its cells, as shares of the best rival's capacity.
	Shares []float64
}

// gapShare is the share of capacity at which gaps are reported; every ground has it.
const gapShare = 0.7

// The axes.
var (
	shapes = []string{
		"2P2D", "3P1D", "4P1D", "4P2D", "6P2D", "4P4D", "8P8D", "12P4D", "4D", "8D", "16D",
	}
	caches = []float64{1, 4}
	steps  = []int{1024, 2048, 8192}
	shares = []float64{0.5, 0.85, 0.95}
)

// Draw draws grounds: every kind once per round, each time in another fleet, with two cells. Small fleets
// come first, because they give the most results for their time.
func Draw(seed uint64, rounds int) []Ground {
	rnd := rand.New(rand.NewPCG(seed, 0x67726964))
	var all []Ground
	var deck []string // of shapes, so that all are drawn equally often
	for range rounds {
		for _, k := range trace.Kinds() {
			if len(deck) == 0 {
				deck = slices.Clone(shapes)
				rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			g := Ground{Kind: k.Name, Blind: k.Blind, Shape: deck[0]}
			for g.Cache == 0 || slices.ContainsFunc(all, func(x Ground) bool { return x.Name() == g.Name() }) {
				g.Cache, g.Step = one(rnd, caches), one(rnd, steps)
			}
			g.Shares = []float64{gapShare, one(rnd, shares)}
			slices.Sort(g.Shares)
			deck = deck[1:]
			all = append(all, g)
		}
	}
	slices.SortStableFunc(all,
		func(a, b Ground) int { return cmp.Compare(replicas(a.Shape), replicas(b.Shape)) })
	return all
}

func one[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// replicas counts the replicas of a listed shape.
func replicas(shape string) int {
	var p, d int
	if n, _ := fmt.Sscanf(shape, "%dP%dD", &p, &d); n == 2 {
		return p + d
	}
	_, _ = fmt.Sscanf(shape, "%dD", &d)
	return d
}

// unsplit is the shape with the same number of replicas in one pool.
func unsplit(shape string) string { return fmt.Sprintf("%dD", replicas(shape)) }

// Name names the ground.
func (g *Ground) Name() string {
	return fmt.Sprintf("%s/%s/cache%g/step%d", g.Kind, g.Shape, g.Cache, g.Step)
}

// Cell names a cell of the ground.
func (g *Ground) Cell(share float64) string { return fmt.Sprintf("%s/%g", g.Name(), share) }

// Names returns the names of the ground and of its cells.
func (g *Ground) Names() []string {
	names := []string{g.Name()}
	for _, share := range g.Shares {
		names = append(names, g.Cell(share))
	}
	return names
}

// seed makes the plays of a ground different from those of other grounds.
func (g *Ground) seed(of uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.Name()))
	return h.Sum64()>>8 + of
}

// Line is one cell that has been played.
type Line struct {
	Cell  string  `json:"cell"`
	Kind  string  `json:"kind"`
	Blind bool    `json:"blind"`
	Shape string  `json:"shape"`
	Cache float64 `json:"cache"`
	Step  int     `json:"step"`
	Share float64 `json:"share"` // of the best rival's capacity
	Load  float64 `json:"load"`
	Seed  uint64  `json:"seed"`
	// Share of good answers that makes a capacity: 0.9, or less where even an idle fleet has no more.
	Enough   float64    `json:"enough"`
	Bound    float64    `json:"bound"` // load at which engines with a perfect cache are busy all the time
	Capacity Capacities `json:"capacity"`
	Ours     Figures    `json:"ours"`
	Rival    Figures    `json:"rival"`   // the best fair rival in the same shape
	Unsplit  Figures    `json:"unsplit"` // the best policy in one pool of as many replicas
	Windows  *Trio      `json:"windows,omitempty"`
	Again    []Again    `json:"again,omitempty"` // the same cell with other seeds
	Known    []Known    `json:"known,omitempty"` // results of the first [Oracles]
	Model    string     `json:"model,omitzero"`  // see [Options.Model]
	Seconds  float64    `json:"seconds"`         // real time of the ground
}

// Capacities are the largest loads with enough good answers.
type Capacities struct {
	Ours    float64 `json:"ours"`
	Rival   float64 `json:"rival"`
	Unsplit float64 `json:"unsplit"`
	// The forms that hold these loads with the first seed. Other seeds play the same forms.
	RivalForm   string `json:"rival_form,omitempty"`
	UnsplitForm string `json:"unsplit_form,omitempty"`
}

// Again is a cell played with another seed, each side in the same form and at the same load. The form that
// holds the most may differ from the form that is best at that load.
type Again struct {
	Number   int        `json:"seed"` // 2 is the second
	Capacity Capacities `json:"capacity"`
	Ours     Figures    `json:"ours"`
	Rival    Figures    `json:"rival"`
	Unsplit  Figures    `json:"unsplit"`
	Windows  *Trio      `json:"windows,omitempty"`
}

// Trio has one value for each side.
type Trio struct {
	Ours    Windows `json:"ours"`
	Rival   Windows `json:"rival"`
	Unsplit Windows `json:"unsplit"`
}

// Figures are the saved figures of a play.
type Figures struct {
	Policy   string  `json:"policy"`
	Measured int     `json:"measured"`
	Lost     int     `json:"lost"` // refused, or ended with an error
	Usual    float64 `json:"good"`
	Tight    float64 `json:"good_tight"`
	TTFT     float64 `json:"ttft_mean_s"`
	TTFT99   float64 `json:"ttft_p99_s"`
	TPOT     float64 `json:"tpot_p50_s"`
	TPOT99   float64 `json:"tpot_p99_s"`
	Gap99    float64 `json:"gap_p99_s"`
	Halting  float64 `json:"gap_above_200ms"`
	Stuck    float64 `json:"gap_above_1s"`
	Local    float64 `json:"local"`
}

func figures(o *replay.Outcome) Figures {
	return Figures{
		Policy: o.Policy, Measured: o.Measured, Lost: o.Refused + o.Failed, Usual: o.Usual, Tight: o.Tight,
		TTFT: replay.Loss(o), TTFT99: o.TTFT.P99, TPOT: o.TPOT.P50, TPOT99: o.TPOT.P99, Gap99: o.Gap.P99,
		Halting: o.Halting, Stuck: o.Stuck, Local: o.Local,
	}
}
