package enginesim

const (
	contentSeed = 1
	hashSeed    = 2
)

func mixString(h uint64, s string) uint64 { return h }
