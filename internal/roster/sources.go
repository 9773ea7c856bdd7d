package roster

import "github.com/tandem-router/tandem/internal/replica"

// Source is a member from which another engine can pull the leading blocks of a prompt.
type Source struct {
	*replica.Replica
	Tokens int // leading tokens of the prompt whose blocks it has
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
