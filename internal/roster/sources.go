package roster

import "github.com/tandem-router/tandem/internal/replica"

// Source is a member from which another engine can pull the leading blocks of a prompt.
type Source struct {
	*replica.Replica
	Tokens int // leading tokens of the prompt whose blocks it has
}

// Pulls says what the candidates for one prompt may pull from other engines. The zero Pulls is nothing.
type Pulls struct {
	Sources []Source // engines that have leading blocks of the prompt
	// Time returns the seconds of a pull of so many tokens from one replica to another, below 0 if they cannot
	// do it. It is set where there are Sources.
	Time func(from, to *replica.Replica, tokens int) float64
}

// Pull is a pull of leading blocks, with what is left to do after it. The zero Pull is none.
type Pull struct {
	Source
	Took float64 // seconds until the blocks are on the GPU
	Warm float64 // seconds to compute the tokens behind the pulled ones
}

// Best returns the pull after which the replica to has the prompt soonest, none if no pull is faster than
// computing. The replica has its first tokens, and computes the rest of the prompt in warm seconds. behind
// returns the seconds to compute what follows so many tokens. read is the seconds in which the replica reads
// a token from its own memory of the host, where pulled blocks arrive.
//
// The engine asks the source before it pulls. So a wrong belief costs one message, and the blocks are
// computed.
func (p *Pulls) Best(
	to *replica.Replica, has, prompt int, warm, read float64, behind func(tokens int) float64,
) (best Pull) {
	least := warm
	for _, s := range p.Sources {
		if s.Tokens <= has || s.Tokens >= prompt {
			continue
		}
		took, rest := p.Time(s.Replica, to, s.Tokens-has), behind(s.Tokens)
		if took < 0 {
			continue
		}
		if took += read * float64(s.Tokens-has); took+rest < least {
			best, least = Pull{s, took, rest}, took+rest
		}
	}
	return best
}

// mostSources bounds the sources of one prompt. Each candidate is compared with each source.
const mostSources = 4

// keepMost adds one, and drops the source with the fewest tokens if there are too many.
func keepMost(sources []Source, one Source) []Source {
	if len(sources) < mostSources {
		return append(sources, one)
	}
	least := 0
	for i := range sources {
		if sources[i].Tokens < sources[least].Tokens {
			least = i
		}
	}
	if one.Tokens > sources[least].Tokens {
		sources[least] = one
	}
	return sources
}
