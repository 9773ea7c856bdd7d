package scoring

// A prompt that a decode replica computes itself may be sent in pieces. Each piece is a request of its own
// for a longer beginning of the prompt; the engine finds the earlier pieces in its prefix cache. Streams on
// the replica stop for one piece, not for the whole prompt, and make a token between two pieces.

// Took returns the seconds from the beginning of the prefill to its end.
func (l *Local) Took() float64 { return l.Warm + l.Between }

// Ready returns the seconds until the replica has computed the prompt.
func (l *Local) Ready() float64 { return l.Wait + l.Pull + l.Read + l.Took() }

// Longest returns the longest seconds without a decode-only step.
func (l *Local) Longest() float64 {
	if l.Piece == 0 {
		return l.Warm
	}
	return l.Piece
}

// pause weighs the seconds for which each stream stops, by the length of each stop.
func (l *Local) pause() float64 {
	if l.Piece == 0 {
		return pausePenalty(l.Warm)
	}
	return l.Warm * (1 + min(l.Piece, pauseLong))
}

// contention returns the total wait of requests that arrive during the prefill: on average half its time, or
// half of a piece.
func (l *Local) contention() float64 {
	if l.Piece == 0 {
		return contention(l.Warm, l.Arrivals)
	}
	return l.Arrivals * l.Took() * l.Piece / 2
}
