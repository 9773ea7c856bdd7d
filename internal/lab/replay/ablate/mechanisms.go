package ablate

import (
	"slices"
	"strings"
)

// Mechanism is a part of the decision that can be switched off.
type Mechanism struct {
	Name   string
	About  string
	Policy string // the policy without it, as [policies.New] takes it
	// What it takes, counted by hand: lines of code without comments and tests, and named constants.
	Lines, Constants int
}

// form is production's decision with settings.
func form(settings ...string) string { return reference + ":" + strings.Join(settings, ":") }

// reference is the decision with all mechanisms.
const reference = "tandem"

// Mechanisms lists what can be switched off.
func Mechanisms() []Mechanism {
	return []Mechanism{
		{"local", "decode replicas compute no prompts: Local(d)", "tandem-split", 0, 0},
		{"interference", "streams that stand still cost nothing", form("interference=0"), 60, 4},
		{"lengths", "nothing is learned of the lengths of answers", form("lengths=0"), 550, 19},
		{"speeds", "nothing is learned of the speeds of engines", form("speeds=0"), 1290, 30},
		{"pieces", "prompts are computed whole", form("piece=0"), 540, 5},
		{"alpha-auto", "alpha is 1", form("alpha=1"), 65, 4},
		{"pressure", "gamma is 0", form("gamma=0"), 10, 2},
		{"ties", "only equal plans are drawn among", form("ties=0"), 135, 2},
		{"late-binding", "a living decode replica keeps its request", form("late=0"), 145, 1},
		{"most-sequences", "how many sequences an engine runs is not learned", form("sequences=0"), 155, 7},
		{"in-use", "a prefix in use takes room for each request", form("in-use=0"), 60, 0},
		{"slower", "slower engines cost nothing for being slower", form("slower=0"), 95, 2},
		{"overdue", "a stuck prefill replica is taken to go on", form("overdue=0"), 20, 1},
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

// Named returns the mechanisms with the given names, all mechanisms for no name, and the first unknown name.
func Named(names []string) (found []Mechanism, unknown string) {
	all := Mechanisms()
	if len(names) == 0 {
		return all, ""
	}
	for _, name := range names {
		at := slices.IndexFunc(all, func(m Mechanism) bool { return m.Name == name })
		if at < 0 {
			return nil, name
		}
		found = append(found, all[at])
	}
	return found, ""
}
