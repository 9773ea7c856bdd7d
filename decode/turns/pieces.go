package turns

import "math"

// Pieces returns into how many pieces of at most so many seconds work is cut. A last one that would be short
// is added to the others.
func Pieces(work, most float64) int {
	if !(most > 0) || !(work > most) {
		return 1
	}
	return max(1, int(math.Ceil(work/most-pieceMore)))
}

// pieceMore is by how much of itself a piece may be longer, rather than that there is one more.
const pieceMore = 0.25
