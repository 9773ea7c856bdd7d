package demo

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
)

// traffic makes the requests of the demonstration's clients: conversations that share long system prompts and
// grow turn by turn, like chats and agents.
type traffic struct {
	seed    uint64
	systems []string
}

// message is one turn of a chat as the API has it.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// words are what prompts are made of.
var words = strings.Fields("the router keeps a map of blocks that each replica holds and sends every " +
	"request where its prefix already lives " +
	"unless the queue there is longer than what would be saved prefill computes decode streams and the cache " +
	"moves between them in one handoff " +
	"measure twice lease once return what you borrow a wrong answer costs more than a slow one watch the tail " +
	"not the mean")

func newTraffic(o Options) *traffic {
	t := &traffic{seed: o.Seed}
	rnd := rand.New(rand.NewPCG(o.Seed, 1))
	for i := range 3 {
		t.systems = append(t.systems, fmt.Sprintf("You are assistant number %d. ", i+1)+sentence(rnd, 420+i*160))
	}
	return t
}

func sentence(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[rnd.IntN(len(words))])
	}
	return b.String()
}

// conversations yields the questions of client i for as long as it is asked: the messages so far, and a way
// to add the answer.
func (t *traffic) conversations(client int) iter.Seq[*conversation] {
	rnd := rand.New(rand.NewPCG(t.seed, uint64(client)+100))
	return func(yield func(*conversation) bool) {
		for n := 0; ; n++ {
			c := &conversation{
				name: fmt.Sprintf("c%d.%d", client+1, n+1), rnd: rnd, turns: 2 + rnd.IntN(4),
				messages: []message{{"system", t.systems[rnd.IntN(len(t.systems))]}},
			}
			if !yield(c) {
				return
			}
		}
	}
}

// conversation is one chat as its client sees it. One goroutine owns it.
type conversation struct {
	name     string
	rnd      *rand.Rand
	turns    int
	turn     int
	messages []message
}

// ask adds the next question and returns the most tokens of its answer. ok is false if the conversation is
// over.
func (c *conversation) ask() (maxTokens int, ok bool) {
	if c.turn == c.turns {
		return 0, false
	}
	c.turn++
	length := 20 + c.rnd.IntN(60)
	if c.rnd.IntN(5) == 0 {
		length += 500 // somebody pastes a document
	}
	c.messages = append(c.messages, message{"user", sentence(c.rnd, length)})
	return 24 + c.rnd.IntN(40), true
}

// answered adds the assistant's turn.
func (c *conversation) answered(text string) {
	c.messages = append(c.messages, message{"assistant", text})
}
