package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Misstated is the set of wrong or missing facts that routers get about a fleet. The zero value states
// everything as it is. Oracles get the [Truth] all the same.
type Misstated struct {
	// Links is the stated speed of all links over their true speed: 10 for ten times too fast, 0.1 for ten times
	// too slow, 0 for the truth.
	Links float64

	// Speed is the stated speed of engines over their true speed. With 0 Tandem gets no speeds, as by default,
	// and other policies get the engines' profile.
	Speed float64
	Bare  bool // the stated speeds leave out the time of the hosts

	// Where token ids are unknown, the estimated length of prompts over their true length, in the mean. Prompts
	// are matched by text. 0: ids are known.
	Text    float64
	Nothing bool          // routers know nothing about the contents of caches
	Routers int           // routers that do not know of each other; 0: as in the fleet
	Every   time.Duration // interval at which routers report their bookings to each other, 0 never
}

// ToldLinks returns the stated bytes per second of each class of path.
func (c *Config) ToldLinks() [replica.Links]float64 {
	told := c.Links
	for class := range told {
		told[class] *= cmp.Or(c.Misstated.Links, 1)
	}
	return told
}

// Chunk is the number of tokens in a chunk of text, by production's defaults. Prompts without ids are
// matched by chunks.
const Chunk = 64

// estimateError is the largest relative error of an estimated prompt length.
const estimateError = 0.25

// ParseMisstated reads wrong facts, separated by commas; "" is the truth:
//
//	links=10      the stated speed of links is ten times their real speed
//	speed=2       the stated speed of engines is twice their real speed
//	speed=profile the stated speed of engines leaves out their host time
//	ids=none      the token ids of prompts are unknown: prompts are matched by their text
//	length=2      as ids=none, and the estimated length of prompts is twice the real length
//	index=none    the contents of caches are unknown
//	routers=4     four routers that do not know of each other
//	routers=4@1s  four routers that report their bookings to each other every second
func ParseMisstated(text string) (m Misstated, err error) {
	if text == "" {
		return m, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		what, value, _ := strings.Cut(one, "=")
		var bad error
		switch what {
		case "links":
			m.Links, bad = times(value)
		case "speed":
			if m.Bare = value == "profile"; m.Bare {
				value = "1"
			}
			m.Speed, bad = times(value)
		case "ids":
			m.Text, bad = 1, none(value)
		case "length":
			m.Text, bad = times(value)
		case "index":
			m.Nothing, bad = true, none(value)
		case "routers":
			m.Routers, m.Every, bad = several(value)
		default:
			bad = errors.New("is not one of links, speed, ids, length, index and routers")
		}
		if bad != nil {
			return m, fmt.Errorf("misstated fact %q %w", one, bad)
		}
	}
	return m, nil
}

// times reads a factor.
func times(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) || x > 1e6 {
		return 0, errors.New("is not like links=10, links=0.1, speed=2, speed=profile or length=2")
	}
	return x, nil
}

func none(text string) error {
	if text != "none" {
		return errors.New("is not ids=none or index=none")
	}
	return nil
}

// several reads a number of routers and the interval of their reports to each other.
func several(text string) (n int, every time.Duration, err error) {
	number, pause, tell := strings.Cut(text, "@")
	if n, err = strconv.Atoi(number); err == nil && tell {
		every, err = time.ParseDuration(pause)
	}
	if err != nil || n < 1 || n > maxRouters || every < 0 || tell && every == 0 {
		return 0, 0, fmt.Errorf("is not like routers=4 or routers=4@1s, with 1 to %d of them", maxRouters)
	}
	return n, every, nil
}

// ToldNode returns an engine with the stated times of its steps.
func (c *Config) ToldNode(side Side, i int) Node {
	n := c.Nodes[side][i]
	if c.Misstated.Speed > 0 {
		n.Engine.Cost.Speed = cmp.Or(n.Engine.Cost.Speed, 1) * c.Misstated.Speed
	}
	if c.Misstated.Bare {
		n.Engine.Cost.Host = 0
	}
	return n
}

// ask makes the router's view of a prompt.
func (c *Cluster) ask(x *call) {
	told := &c.cfg.Misstated
	if told.Text > 0 {
		// All prompts of a session, and their chunks, have the same error of estimate, because the words are
		// alike.
		h := uint64(x.session.number)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
		off := estimateError * (2*float64(h>>11)/(1<<53) - 1)
		off = (1 + off) * told.Text
		x.q.Tokens = max(1, int(float64(len(x.prompt))*off))
		x.q.Chunk = Chunk * off
	}
	switch {
	case told.Nothing: // keys would not help
	case told.Text > 0:
		x.q.Keys = c.keys(kv.NewChain("", Chunk), x.prompt)
	case c.want[Prefill] || c.want[Decode]:
		x.q.Keys = c.keys(kv.NewChain("", c.engines.of[Decode][0].core.Config().BlockSize), x.prompt)
	}
}

// follows reports whether routers get block events.
func (m *Misstated) follows() bool { return m.Text == 0 && !m.Nothing }
