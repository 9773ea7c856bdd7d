package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Recipe describes composed traffic: one request per second, of single calls.
type Recipe struct {
	Prompt int // median tokens of a prompt
	Answer int // median tokens of an answer; 4 means 1 to 8, evenly
	Prefix Sharing
	Arrive Pattern
}

// Sharing is how much of its prompt a request shares with others.
type Sharing uint8

// Nothing; two fifths, which are one of eight instructions; or nearly all, one of two hundred documents about
// which something is asked.
const (
	None Sharing = iota
	Some
	Most
	sharings
)

func (s Sharing) String() string { return [...]string{"none", "some", "most"}[s] }

// Pattern is the pattern of arrivals.
type Pattern uint8

// Independently of each other; twenty after another within a second or so, and then none for some time; or
// all of three seconds at once.
const (
	Poisson Pattern = iota
	Bursts
	Ticks
	patterns
)

func (p Pattern) String() string { return [...]string{"poisson", "bursts", "ticks"}[p] }

// Constants of composed traffic.
const (
	shortPrompt, longPrompt = 600, 8000
	shortestPrompt          = 32
	longestComposed         = 1 << 20 // tokens
	composedBlock           = 16
	instructions            = 8
	instructed              = 0.4 // of a prompt of median length
	documents               = 200
	asked                   = 0.05 // of a document's length
	burst                   = 20   // requests, on average
	within                  = 0.05 // s between two of a burst
	tick                    = 3    // s
)

// lengths are the names of lengths of prompts; any other is its number of tokens.
var lengths = map[string]int{"short": shortPrompt, "long": longPrompt}

// String is the name of the kind that r makes.
func (r Recipe) String() string {
	prompt := strconv.Itoa(r.Prompt)
	for name, tokens := range lengths {
		if r.Prompt == tokens {
			prompt = name
		}
	}
	return fmt.Sprintf("answers%d-%s-%v-%v", r.Answer, prompt, r.Prefix, r.Arrive)
}

// parseRecipe returns the recipe with this name, or false.
func parseRecipe(name string) (r Recipe, ok bool) {
	part := strings.Split(strings.TrimPrefix(name, "answers"), "-")
	if len(part) != 4 {
		return r, false
	}
	r.Answer, _ = strconv.Atoi(part[0])
	if r.Prompt = lengths[part[1]]; r.Prompt == 0 {
		r.Prompt, _ = strconv.Atoi(part[1])
	}
	for r.Prefix = None; r.Prefix < sharings && r.Prefix.String() != part[2]; r.Prefix++ {
		continue
	}
	for r.Arrive = Poisson; r.Arrive < patterns && r.Arrive.String() != part[3]; r.Arrive++ {
		continue
	}
	ok = r.Answer > 0 && r.Prompt >= shortestPrompt && max(r.Answer, r.Prompt) <= longestComposed &&
		r.Prefix < sharings && r.Arrive < patterns
	return r, ok && r.String() == name
}

func (r Recipe) about() string {
	answer := fmt.Sprintf("answers of about %d tokens", r.Answer)
	if r.Answer < 8 {
		answer = "answers of 1 to 8 tokens"
	}
	return fmt.Sprintf("prompts of some %d tokens, %s; %s; %s", r.Prompt, answer,
		[...]string{
			"nothing in common", "two fifths are one of eight instructions",
			"nearly all is one of two hundred documents",
		}[r.Prefix],
		[...]string{
			"independent of each other", "in bursts of twenty, one after the other", "all of three seconds at once",
		}[r.Arrive])
}

// Composer makes sessions of a recipe without end.
type Composer struct {
	r       Recipe
	rnd     *rand.Rand
	at      float64 // s
	left    int     // requests left in the present burst or tick
	count   uint64
	shared  []int // tokens of each document
	popular *rand.Zipf
}

// Compose starts a recipe with a seed.
func (r Recipe) Compose(seed uint64) *Composer {
	c := &Composer{r: r, rnd: rand.New(rand.NewPCG(seed, 0x636f6d70))}
	n := 0
	switch r.Prefix {
	case Some:
		n = instructions
	case Most:
		n = documents
	case None:
		return c
	}
	c.popular = rand.NewZipf(c.rnd, 1.2, 4, uint64(n-1))
	for range n {
		length := int(instructed * float64(r.Prompt))
		if r.Prefix == Most {
			length = c.prompt()
		}
		c.shared = append(c.shared, length/composedBlock*composedBlock)
	}
	return c
}

// Next makes the next session.
func (c *Composer) Next() (*Session, error) {
	c.count++
	c.advance()
	input, ids := c.content()
	s := single(time.Duration(c.at*1e9), composedBlock, flat(input, c.answer(), ids))
	return s, nil
}

// advance moves on to the next request's time.
func (c *Composer) advance() {
	switch c.r.Arrive {
	case Poisson:
		c.at += c.rnd.ExpFloat64()
	case Bursts:
		if c.left--; c.left > 0 {
			c.at += within * c.rnd.ExpFloat64()
			return
		}
		c.left = 1 + c.rnd.IntN(2*burst-1)
		c.at += (burst - within*(burst-1)) * c.rnd.ExpFloat64()
	case Ticks:
		if c.left--; c.left > 0 {
			return
		}
		c.left = 1 + c.rnd.IntN(2*tick-1)
		c.at = (math.Floor(c.at/tick) + 1) * tick
	}
}

// content draws a prompt: its tokens and its blocks.
func (c *Composer) content() (input int, ids []uint64) {
	own := c.prompt()
	if c.popular != nil {
		which := c.popular.Uint64()
		shared := c.shared[which]
		for i := range shared / composedBlock {
			ids = append(ids, mix(which+1, uint64(i)))
		}
		own = max(shortestPrompt, own-shared)
		if c.r.Prefix == Most {
			own = max(composedBlock, int(asked*float64(shared)))
		}
		input = shared
	}
	input += own
	for i := len(ids); i < input/composedBlock; i++ {
		ids = append(ids, mix(mix(1<<63, c.count), uint64(i)))
	}
	return input, ids
}

// prompt draws a length.
func (c *Composer) prompt() int {
	return max(shortestPrompt, min(4*c.r.Prompt, c.spread(c.r.Prompt, 0.7)))
}

// answer draws a length.
func (c *Composer) answer() int {
	if c.r.Answer < 8 {
		return 1 + c.rnd.IntN(2*c.r.Answer)
	}
	return max(1, min(3*c.r.Answer, c.spread(c.r.Answer, 0.5)))
}

// spread draws a log-normal value around a median.
func (c *Composer) spread(median int, sigma float64) int {
	return int(float64(median) * math.Exp(sigma*c.rnd.NormFloat64()))
}
