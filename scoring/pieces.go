package scoring

// A prompt that a decode replica computes itself may be sent to it in pieces, each a request of its own for a
// longer beginning of the prompt: the engine finds what is before it in its prefix cache. Streams there stand
// still for a piece, and not for the whole prompt, and make a token between one piece and the next.

// Took returns the seconds from the beginning of the prefill to its end.
func (l *Local) Took() float64 { return l.Warm + l.Between }

// Longest returns the seconds for which nobody else has a step to itself.
func (l *Local) Longest() float64 {
	if l.Piece == 0 {
		return l.Warm
	}
	return l.Piece
}

// pause weighs the seconds for which each stream stands still, by how many of them it does so at once.
func (l *Local) pause() float64 {
	if l.Piece == 0 {
		return pausePenalty(l.Warm)
	}
	return l.Warm * (1 + pauseGrows*min(l.Piece, pauseLong))
}

// contention is the seconds that those wait, all together, who come meanwhile: half of the prefill on
// average, or of a piece.
func (l *Local) contention() float64 {
	if l.Piece == 0 {
		return contention(l.Warm, l.Arrivals)
	}
	return l.Arrivals * l.Took() * l.Piece / 2
}
