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
}

// form is production's decision with settings.
func form(settings ...string) string { return reference + ":" + strings.Join(settings, ":") }

// reference is the decision with all mechanisms.
const reference = "tandem"

// Mechanisms lists what can be switched off: by a setting of the policy, never by a switch in the decision.
func Mechanisms() []Mechanism {
	return []Mechanism{
		{"local", "decode replicas compute no prompts: Local(d)", "tandem-split"},
		{"jointly", "the prefill replica is chosen first, then the decode replica", "tandem-sequential"},
		{"interference", "streams that stand still or slow down cost nothing", form("penalty=0")},
		{"lengths", "nothing is learned of the lengths of answers", form("lengths=0")},
		{"speeds", "nothing is learned of the speeds of engines", form("speeds=0")},
		{"pieces", "prompts are computed whole", form("piece=0")},
		{"alpha-auto", "alpha is 1", form("alpha=1")},
		{"pressure", "gamma is 0", form("gamma=0")},
		{"ties", "only equal plans are drawn among", form("ties=0")},
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
