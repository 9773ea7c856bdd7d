package kv

// lowerTiers is the number of tiers below the engine's own block pool.
const lowerTiers = int(Other)

// Below says how much of a match must be read back, by the tier that has it. A block counts for its nearest
// copy. The rest of the match has a copy on the GPU. [Index.MatchTiers] counts blocks.
//
// In the rare case that two names of an engine stand for one block, the block may count for either.
type Below struct {
	CPU    int32 `json:"cpu,omitzero"`
	Shared int32 `json:"shared,omitzero"`
	Disk   int32 `json:"disk,omitzero"`
	Other  int32 `json:"other,omitzero"`
}

// In returns the place of a tier's number, which is not the GPU.
func (b *Below) In(t Tier) *int32 {
	switch t {
	case CPU:
		return &b.CPU
	case Shared:
		return &b.Shared
	case Disk:
		return &b.Disk
	}
	return &b.Other
}

// Sum returns what must be read back from all tiers.
func (b Below) Sum() int { return int(b.CPU) + int(b.Shared) + int(b.Disk) + int(b.Other) }

// Tiers returns the numbers in the order of the tiers.
func (b Below) Tiers() [lowerTiers]int32 { return [lowerTiers]int32{b.CPU, b.Shared, b.Disk, b.Other} }

// ByTier returns the numbers above 0 of the lower tiers by the names of the tiers.
func ByTier(numbers [lowerTiers]float64) map[string]float64 {
	named := map[string]float64{}
	for i, x := range numbers {
		if x > 0 {
			named[(CPU + Tier(i)).String()] = x
		}
	}
	return named
}

// Times returns each number times n.
func (b Below) Times(n int) Below {
	by := int32(n)
	return Below{b.CPU * by, b.Shared * by, b.Disk * by, b.Other * by}
}
