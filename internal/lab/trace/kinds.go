package trace

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of traffic, made by a fixed rule. Decisions are judged on kinds. A blind kind is never used
// to choose a constant, and its results are reported separately.
type Kind struct {
	Name  string
	About string
	Blind bool
	// Requests per second at a load of 1; sessions per second for closed loops.
	Rate     float64
	Loops    bool
	Recorded Recording
	Composed Recipe // if there is no recording
}

// Recording is a part of recorded traffic, and the changes to that part.
type Recording struct {
	File     string        // "": the kind is composed
	From, To time.Duration // of the recording; To 0 for its end
	Arrivals string        // file of ServeGen's clients that gives the arrival times; "": as recorded
	Answers  [2]int        // tokens, drawn evenly, both included; zero: as recorded
	Unshared bool          // no two sessions have a block in common
}

// kindsSeed decides which of all possible composed kinds exist.
const kindsSeed = 2_026

// The files of recorded kinds.
const (
	conversationFile = "mooncake_conversation.jsonl.gz"
	agentsFile       = "weka_agentic_dev.jsonl.gz"
	azureFile        = "azure_llm_2023_conv.csv.gz"
	benchmarksFile   = "lmcache_agents.jsonl.gz"
	clientsFile      = "servegen_m_large_arrivals.csv.gz"
	reasonersFile    = "servegen_deepseek_r1_arrivals.csv.gz"
)

const (
	conversationRate = 3.34
	azureRate        = 5.53
)

// Kinds lists them: recorded ones, and composed ones that chance has drawn once and for all. Half are blind.
func Kinds() []Kind { return append(recordedKinds(), composedKinds()...) }

// FindKind finds a kind by its name, or makes one. For example, answers40-300-none-bursts has answers of some
// 40 tokens and prompts of some 300 tokens (or short, or long). Its prompts have nothing in common (or some,
// or most). Its requests come in bursts (or poisson or ticks).
func FindKind(name string) (Kind, error) {
	all := Kinds()
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return all[i], nil
	}
	if r, ok := parseRecipe(name); ok {
		return Kind{Name: name, About: r.about(), Rate: 1, Composed: r}, nil
	}
	return Kind{}, fmt.Errorf("no kind of traffic %q: one of %s, or like answers40-300-none-bursts", name,
		strings.Join(names(all), ", "))
}

func names(all []Kind) []string {
	var out []string
	for _, k := range all {
		out = append(out, k.Name)
	}
	return out
}

// Long: one row per kind.
func recordedKinds() []Kind {
	const minute = time.Minute
	return []Kind{
		{
			Name: "conversation", About: "chats at Kimi, the first 20 minutes", Rate: conversationRate,
			Recorded: Recording{File: conversationFile, To: 20 * minute},
		},
		{
			Name: "conversation-late", About: "the same, minutes 40 to 60", Blind: true, Rate: conversationRate,
			Recorded: Recording{File: conversationFile, From: 40 * minute},
		},
		{
			Name: "conversation-bursts", About: "its first 20 minutes, as unevenly as ServeGen's clients send",
			Rate:     conversationRate,
			Recorded: Recording{File: conversationFile, To: 20 * minute, Arrivals: clientsFile},
		},
		{
			Name: "conversation-unshared", About: "its minutes 20 to 40, nothing in common between two requests",
			Blind: true, Rate: conversationRate,
			Recorded: Recording{File: conversationFile, From: 20 * minute, To: 40 * minute, Unshared: true},
		},
		{
			Name: "agents", About: "a coding agent's sessions, closed loops with nearly all of a prompt cached",
			Rate: 0.05, Loops: true, Recorded: Recording{File: agentsFile},
		},
		{
			Name: "agents-benchmarks", About: "three benchmarks of agents, closed loops", Blind: true, Rate: 0.3,
			Loops: true, Recorded: Recording{File: benchmarksFile},
		},
		{
			Name: "azure-chat", About: "an Azure chat service, nothing in common", Rate: azureRate,
			Recorded: Recording{File: azureFile},
		},
		{
			Name: "azure-bursts", About: "the same lengths, as unevenly as ServeGen's clients send", Blind: true,
			Rate: azureRate, Recorded: Recording{File: azureFile, Arrivals: clientsFile},
		},
		{
			Name: "azure-short", About: "its prompts and times, answers of 1 to 8 tokens", Rate: azureRate,
			Recorded: Recording{File: azureFile, Answers: [2]int{1, 8}},
		},
		{
			Name: "azure-28", About: "its prompts and times, answers of about 28 tokens", Blind: true,
			Rate: azureRate, Recorded: Recording{File: azureFile, Answers: [2]int{14, 42}},
		},
		{
			Name: "extract-bursts", About: "prompts of some 2,000 tokens with nothing in common, answers of about " +
				"28, one request in a burst after the other", Rate: 1,
			Composed: Recipe{Prompt: 2000, Answer: 28, Arrive: Bursts},
		},
		{
			Name: "azure-reasoning", About: "its prompts, answers of 1,000 to 5,000, at the times of a reasoning " +
				"model's clients", Blind: true, Rate: azureRate,
			Recorded: Recording{File: azureFile, Answers: [2]int{1000, 5000}, Arrivals: reasonersFile},
		},
	}
}

// composedKinds draws for each length of answers and of prompts two ways of sharing and arriving; the second
// of a pair is blind.
func composedKinds() []Kind {
	rnd := rand.New(rand.NewPCG(kindsSeed, 0x6b696e64))
	type way struct {
		prefix Sharing
		arrive Pattern
	}
	var ways []way
	for p := range sharings {
		for a := range patterns {
			ways = append(ways, way{p, a})
		}
	}
	var all []Kind
	for _, answer := range []int{4, 28, 300, 3000} {
		for _, prompt := range []int{shortPrompt, longPrompt} {
			for i, at := range rnd.Perm(len(ways))[:2] {
				r := Recipe{Prompt: prompt, Answer: answer, Prefix: ways[at].prefix, Arrive: ways[at].arrive}
				all = append(all, Kind{Name: r.String(), About: r.about(), Blind: i == 1, Rate: 1, Composed: r})
			}
		}
	}
	return all
}

// recordedFor is the length of each recording with times, or a little less.
const recordedFor = 58 * time.Minute

// Free is how much of a kind's recording is left behind its first span. Another play of the recording may
// begin later by at most this time. It is 0 where nothing is recorded, or the recording has no times.
func (k *Kind) Free(span time.Duration) time.Duration {
	if k.Recorded.File == "" || k.Loops {
		return 0
	}
	end := k.Recorded.To
	if end == 0 {
		end = recordedFor
	}
	return max(0, end-k.Recorded.From-span)
}

// Sessions returns the sessions of a recorded kind from its whole recording.
func (k *Kind) Sessions(recording interface{ Next() (*Session, error) }, seed uint64) *Changed {
	return &Changed{from: recording, r: k.Recorded, rnd: rand.New(rand.NewPCG(seed, 0x616e7377))}
}

// Changed is a changed part of a recording.
type Changed struct {
	from  interface{ Next() (*Session, error) }
	r     Recording
	rnd   *rand.Rand
	count uint64
}

// Next gives the next session; [io.EOF] at the end of the part.
func (c *Changed) Next() (*Session, error) {
	for {
		s, err := c.from.Next()
		if err != nil {
			return nil, err
		}
		c.count++
		if s.Timed && s.At < c.r.From {
			continue
		}
		if s.Timed && c.r.To > 0 && s.At >= c.r.To {
			return nil, io.EOF
		}
		s.At -= min(s.At, c.r.From)
		if c.r.Unshared {
			s.Unshare(c.count)
		}
		for i := range s.Calls {
			if least, most := c.r.Answers[0], c.r.Answers[1]; most > 0 {
				s.Calls[i].Output = least + c.rnd.IntN(most-least+1)
			}
		}
		return s, nil
	}
}
