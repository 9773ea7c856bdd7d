package ablate

import (
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// Mechanism is a part of the decision that can be switched off.
type Mechanism struct {
	Name   string
	About  string
	Policy string // the policy without it, as [policies.New] takes it
	Size
	// Code is the code that could be deleted with the mechanism: files, folders, and declarations as "file
	// name".
	Code []string
}

// Size is the size of a mechanism's code, without comments and tests. A test compares the sizes with the
// sources, and allows a difference of an eighth.
type Size struct {
	Lines     int `json:"lines"`
	Constants int `json:"constants"` // named numbers
}

// form is production's decision with settings.
func form(settings ...string) string { return reference + ":" + strings.Join(settings, ":") }

// reference is the decision with all mechanisms.
const reference = "tandem"

// Mechanisms lists the mechanisms that can be switched off: by a setting of the policy, never by a switch in
// the decision.
func Mechanisms() []Mechanism {
	return []Mechanism{
		{"local", "decode replicas compute no prompts: Local(d)", "tandem-split", Size{144, 0}, []string{
			"decode/local.go", "decode/facts.go gatherLocal", "decode/facts.go priceMatch", "scoring/pieces.go",
			"scoring/plan.go Local", "scoring/plan.go LocalTTFT", "scoring/choose.go locals",
		}},
		{"jointly", "the prefill replica is chosen first", "tandem-sequential", Size{212, 1}, []string{
			"scoring/bounds.go", "scoring/choose.go", "scoring/rates.go",
		}},
		{"interference", "pauses and slower streams cost nothing", form("penalty=0"), Size{19, 3}, []string{
			"scoring/parts.go pausePenalty", "scoring/parts.go pauseLong", "scoring/parts.go patience",
			"scoring/parts.go standing", "scoring/parts.go streams", "scoring/parts.go shortAnswer",
			"scoring/pieces.go pause",
		}},
		{"lengths", "nothing is learned of the lengths of answers", form("lengths=0"), Size{651, 20}, []string{
			"internal/estimate/expectation.go", "internal/estimate/length_buckets.go",
			"internal/estimate/lengths.go", "internal/estimate/outputlength.go", "internal/estimate/learned.go",
			"decode/at_once.go", "decode/learn.go length", "decode/learn.go underway",
		}},
		{"speeds", "nothing is learned of the speeds of engines", form("speeds=0"), Size{981, 28}, []string{
			"internal/estimate/busyspan.go", "internal/estimate/decayingfit.go", "internal/estimate/done.go",
			"internal/estimate/overhead.go", "internal/estimate/pool.go", "internal/estimate/speedfit.go",
			"internal/estimate/state.go", "internal/estimate/stream.go", "decode/learned.go", "decode/slow.go",
			"decode/learn.go prefill", "decode/learn.go computed", "decode/learn.go steps", "prefill/learned.go",
		}},
		{"pieces", "prompts are computed whole", form("piece=0"), Size{536, 6}, []string{
			"decode/pieces.go", "decode/cutter.go", "decode/turns", "internal/estimate/cuts.go",
		}},
		{"alpha-auto", "alpha is 1", form("alpha=1"), Size{20, 2}, []string{
			"scoring/queue.go", "scoring/weights.go At",
		}},
		{"pressure", "gamma is 0", form("gamma=0"), Size{8, 1}, []string{
			"scoring/parts.go Pressure", "scoring/parts.go pressureSeconds",
		}},
		{"ties", "only equal plans are drawn among", form("ties=0"), Size{82, 1}, []string{"scoring/ties.go"}},
	}
}

// Names lists the mechanisms by name.
func Names() []string {
	var names []string
	for _, m := range Mechanisms() {
		names = append(names, m.Name)
	}
	return names
}

// Named returns the mechanisms with a name that begins with a given text, and all if there is none. unknown
// is the first text with which no name begins.
func Named(texts []string) (found []Mechanism, unknown string) {
	return replay.Named(Mechanisms(), texts, func(m *Mechanism) []string { return []string{m.Name} })
}
