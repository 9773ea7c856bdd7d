package classes

import (
	"math"
	"net/http"
	"testing"
	"time"
)

func table() *Table {
	return NewTable([]Class{
		{Name: "chat", Goals: Goals{TTFT: 500 * time.Millisecond, TPOT: 20 * time.Millisecond}},
		{Name: "gold", Rank: 1, Match: Match{Header: "X-Tier", Value: "gold"}},
		{
			Name: "bulk", Goals: Goals{TTFT: 10 * time.Second, Deadline: 20 * time.Second},
			Match: Match{Keys: []string{"robot"}},
		},
		{Name: "vectors", Match: Match{Models: []string{"e"}, Paths: []string{"/v1/embeddings"}}},
		{Name: "mine", Match: Match{Keys: []string{"me"}, Header: "X-Tier", Value: "mine"}},
	})
}

// A class that a request asks for counts if its key may use the class. Else the first match counts, else the
// key's class.
func TestClassOfARequest(t *testing.T) {
	with := func(name, value string) http.Header { return http.Header{name: {value}} }
	may := Client{Known: true, Key: "a", Class: "chat", May: []string{"bulk", "default"}}
	for name, row := range map[string]struct {
		client      Client
		model, path string
		tier        string
		header      http.Header
		want        string
	}{
		"nothing": {want: "default"},
		"key":     {client: may, want: "chat"},
		"asks": {
			client: may, header: with("X-Llm-D-Inference-Objective", "bulk"), want: "bulk",
		},
		"asks by tier":         {client: may, tier: "bulk", want: "bulk"},
		"asks for the default": {client: may, tier: "default", want: "default"},
		"the header beats the tier": {
			client: may, header: with("X-Llm-D-Inference-Objective", "default"), tier: "bulk",
			want: "default",
		},
		"asks for more than it may": {client: may, tier: "gold", want: "chat"},
		"asks without a key":        {tier: "bulk", want: "default"},
		"a tier of another's words": {client: may, tier: "auto", want: "chat"},
		"a key that matches":        {client: Client{Known: true, Key: "robot", Class: "chat"}, want: "bulk"},
		"model and path":            {client: may, model: "e", path: "/v1/embeddings", want: "vectors"},
		"model alone":               {client: may, model: "e", want: "chat"},
		"header without keys":       {header: with("X-Tier", "gold"), want: "gold"},
		"header beyond the key":     {client: may, header: with("X-Tier", "gold"), want: "chat"},
		"header of the key's own class": {
			client: Client{Known: true, Class: "gold"}, header: with("X-Tier", "gold"), want: "gold",
		},
		"header that the key may use": {
			client: Client{Known: true, May: []string{"gold"}}, header: with("X-Tier", "gold"), want: "gold",
		},
		"header of a named key": {
			client: Client{Known: true, Key: "me"}, header: with("X-Tier", "mine"), want: "mine",
		},
		"header of another key": {
			client: Client{Known: true, Key: "b"}, header: with("X-Tier", "mine"), want: "default",
		},
		"header of another value": {header: with("X-Tier", "golden"), want: "default"},
	} {
		c, _ := table().Of(&Request{
			Client: row.client, Model: row.model, Path: row.path, Tier: row.tier, Header: row.header.Get,
		})
		if c.Name != row.want {
			t.Errorf("%s: class %s, want %s", name, c.Name, row.want)
		}
	}
}

// A priority moves a request by so many of the classes that its client may use, at most to the last of them.
// A class that the client names comes first, and a client that may use no class moves nothing.
func TestPriorityMovesAmongClasses(t *testing.T) {
	of := NewTable([]Class{{Name: "a"}, {Name: "b"}, {Name: "b2", Rank: 2}, {Name: "c"}, {Name: "d"}})
	all := []string{"d", "b2", "b", "a", "default"}
	for _, row := range []struct {
		class    string
		may      []string
		asks     string
		priority int
		want     string
	}{
		{"b", all, "", 0, "b"},
		{"b", all, "", -1, "a"},
		{"b", all, "", math.MinInt, "a"},
		{"b", all, "", 1, "d"}, // it may not use c, and b2 is no less urgent
		{"b", all, "", 2, "default"},
		{"b", all, "", math.MaxInt, "default"},
		{"c", []string{"c"}, "", -1, "c"},
		{"c", []string{"d"}, "", -5, "c"},
		{"c", nil, "", -1, "c"},
		{"", []string{"a"}, "", -1, "a"},
		{"b", all, "d", -1, "d"},
	} {
		h := http.Header{"X-Llm-D-Inference-Objective": {row.asks}}
		c, _ := of.Of(&Request{
			Client: Client{Known: true, Class: row.class, May: row.may}, Priority: row.priority,
			Header: h.Get,
		})
		if c.Name != row.want {
			t.Errorf("%+v: class %s", row, c.Name)
		}
	}
}

// A client that may ask can make the goals of its class longer, never shorter, and never add one.
func TestGoalsThatClientsAskFor(t *testing.T) {
	for name, row := range map[string]struct {
		may        []string
		class      string
		ttft, tpot string
		want       Goals
	}{
		"longer": {
			[]string{"chat"},
			"chat", "900", "20.5",
			Goals{TTFT: 900 * time.Millisecond, TPOT: 20500 * time.Microsecond},
		},
		"shorter": {
			[]string{"chat"},
			"chat", "100", "1",
			Goals{TTFT: 500 * time.Millisecond, TPOT: 20 * time.Millisecond},
		},
		"not asked": {
			nil, "chat", "900", "30", Goals{TTFT: 500 * time.Millisecond, TPOT: 20 * time.Millisecond},
		},
		"no goal": {[]string{"gold"}, "gold", "900", "30", Goals{}},
		"no numbers": {
			[]string{"chat"},
			"chat", "NaN", "1e99",
			Goals{TTFT: 500 * time.Millisecond, TPOT: 20 * time.Millisecond},
		},
		"a deadline": {
			[]string{"bulk"}, "bulk", "30000", "", Goals{TTFT: 30 * time.Second, Deadline: 30 * time.Second},
		},
	} {
		h := http.Header{"X-Llm-D-Slo-Ttft-Ms": {row.ttft}, "X-Llm-D-Slo-Tpot-Ms": {row.tpot}}
		_, got := table().Of(&Request{
			Client: Client{Known: true, Class: row.class, May: row.may}, Header: h.Get,
		})
		if got != row.want {
			t.Errorf("%s: goals %+v, want %+v", name, got, row.want)
		}
	}
}

// A first token is too late after three times its goal, after the deadline or when the class says so. What
// the router refuses without classes bounds what the goals say, and goals that are kept are never too late.
func TestFirstTokensThatAreTooLate(t *testing.T) {
	const s = time.Second
	for name, row := range map[string]struct {
		refuse time.Duration
		goals  Goals
		usual  time.Duration
		want   time.Duration
	}{
		"no goals":               {0, Goals{}, 0, 0},
		"no goals but a limit":   {0, Goals{}, 20 * s, 20 * s},
		"goal":                   {0, Goals{TTFT: s}, 0, 3 * s},
		"goal and limit":         {0, Goals{TTFT: s}, 20 * s, 3 * s},
		"goal and nearer limit":  {0, Goals{TTFT: 10 * s}, 20 * s, 20 * s},
		"deadline":               {0, Goals{Deadline: 5 * s}, 0, 5 * s},
		"goal and deadline":      {0, Goals{TTFT: 4 * s, Deadline: 5 * s}, 0, 5 * s},
		"tokens alone":           {0, Goals{TPOT: s}, 0, 0},
		"says so":                {5 * s, Goals{TTFT: s}, 2 * s, 5 * s},
		"says so without a goal": {5 * s, Goals{}, 0, 5 * s},
		"a longer goal is asked": {5 * s, Goals{TTFT: 8 * s}, 0, 8 * s},
		"never":                  {Never, Goals{TTFT: s, Deadline: s}, 2 * s, 0},
	} {
		c := &Class{Name: "c", Refuse: row.refuse, Goals: Goals{TTFT: s}}
		if got := c.FirstBy(row.goals, row.usual); got != row.want {
			t.Errorf("%s: too late after %v, want %v", name, got, row.want)
		}
	}
	var none *Class
	if got := none.FirstBy(Goals{TTFT: s}, 2*s); got != 2*s {
		t.Errorf("without classes too late after %v", got)
	}
}

// Ranks are places in the list, and the class of all other requests comes last.
func TestRanks(t *testing.T) {
	c := table()
	for i, want := range []int{1, 1, 3, 4, 5} {
		if c.list[i].Rank != want {
			t.Errorf("%s has rank %d, want %d", c.list[i].Name, c.list[i].Rank, want)
		}
	}
	if c.other.Rank != 6 || len(c.Names()) != 6 {
		t.Errorf("the default class has rank %d; the names are %q", c.other.Rank, c.Names())
	}
	own := NewTable([]Class{{Name: Rest}, {Name: "last"}})
	if own.other.Rank != 1 || len(own.Names()) != 2 {
		t.Errorf("its own rank is %d; the names are %q", own.other.Rank, own.Names())
	}
	var none *Table
	class, goals := none.Of(&Request{})
	if NewTable(nil) != nil || class != nil || goals != (Goals{}) || none.Names() != nil {
		t.Error("there are classes without classes")
	}
}

func TestGoalsAreJudged(t *testing.T) {
	const s = time.Second
	both := Goals{TTFT: s, TPOT: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		goals        Goals
		first, total time.Duration
		tokens       int
		want         string
	}{
		"no goals":                          {Goals{}, s, 2 * s, 5, ""},
		"all kept":                          {both, s, 2 * s, 11, Kept},
		"late first token":                  {both, s + 1, 2 * s, 11, "ttft"},
		"slow tokens":                       {both, s, 2*s + 1, 11, "tpot"},
		"in one piece":                      {both, 0, 2 * s, 11, Kept},
		"in one piece, slow":                {both, 0, 2*s + 1, 11, "tpot"},
		"in one piece, first token unknown": {Goals{TTFT: s}, 0, 2 * s, 11, ""},
		"in one piece, tokens unknown":      {Goals{TPOT: s}, 0, 2 * s, 11, ""},
		"one token":                         {both, s, s, 1, Kept},
		"deadline":                          {Goals{Deadline: s}, 0, s, 0, Kept},
		"deadline missed":                   {Goals{TTFT: s, Deadline: s}, s, s + 1, 2, "deadline"},
	} {
		if got := c.goals.Judge(c.first, c.total, c.tokens); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
