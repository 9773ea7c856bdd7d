package core

import (
	"fmt"
	"time"
)

// This file is vLLM 0.32.0's handling of tensor-parallel ranks between two engines
// (kv_connector/v1/nixl/base_worker.py, kv_connector/utils.py). Each rank holds the KV of its heads. So a
// decode rank reads a part of one prefill rank's blocks, or the blocks of several prefill ranks. Tables,
// schedules and contents are equal on all ranks, so only a whole engine is simulated.

// checkRanks is the model's assertion while it loads: ranks divide the heads, or heads divide the ranks.
func (c *Config) checkRanks() error {
	if c.KVHeads%c.TensorParallel != 0 && c.TensorParallel%c.KVHeads != 0 {
		return fmt.Errorf("tensor-parallel size %d: want a divisor or a multiple of the model's %d KV heads",
			c.TensorParallel, c.KVHeads)
	}
	return nil
}

// CheckRanks returns why the model does not load on so many ranks, or nil. Defaults are filled in first.
func (c Config) CheckRanks() error {
	c = c.withDefaults()
	return c.checkRanks()
}

// headsOf returns the number of KV heads on each of an engine's ranks.
func (c *Config) headsOf(ranks int) int { return max(1, c.KVHeads/ranks) }

// mamba reports whether the model has Mamba layers.
func (c *Config) mamba() bool {
	for _, g := range c.Groups {
		if g.Kind == "mamba" {
			return true
		}
	}
	return false
}

// ratio returns how many of this engine's ranks read from one remote rank. If negative, it is how many remote
// ranks one rank of this engine reads from.
func (c *Config) ratio(remote int) (int, error) {
	ours := c.TensorParallel
	switch {
	case remote < 1: // in vLLM: ZeroDivisionError, TypeError, or an impossible number of ranks
		return 0, fmt.Errorf("tp_size of the params is not a number of ranks")
	case ours >= remote && ours%remote == 0:
		return ours / remote, nil
	case remote > ours && remote%ours == 0:
		return -(remote / ours), nil
	case remote > ours:
		return 0, fmt.Errorf("AssertionError: Remote tensor parallel size %d is not divisible by "+
			"local tensor parallel size %d", remote, ours)
	}
	return 0, fmt.Errorf("AssertionError: Local tensor parallel size %d is not divisible by "+
		"remote tensor parallel size %d", ours, remote)
}

// AsksFor returns the highest remote rank in the first handshakes, if the params claim claimed ranks. If
// neither number of ranks divides the other, it returns an error: then there is no handshake.
func (c *Config) AsksFor(claimed int) (int, error) {
	ratio, err := c.ratio(claimed)
	switch {
	case err != nil:
		return 0, err
	case ratio > 0:
		return claimed - 1, nil
	}
	return (c.TensorParallel - 1) * -ratio, nil
}

// CanRead returns why this engine cannot read from an engine with remote ranks, if the params claim claimed
// ranks (_validate_remote_agent_handshake). nil: it can.
func (c *Config) CanRead(claimed, remote int) error {
	ratio, err := c.ratio(claimed)
	if err != nil {
		return err
	}
	copies := claimed > c.KVHeads
	if ratio < 0 && copies && !c.mamba() {
		return fmt.Errorf("AssertionError: assert not (tp_ratio < 0 and is_kv_replicated(remote_engine_id))")
	}
	want := c.headsOf(claimed)
	if copies {
		want = c.headsOf(c.TensorParallel)
	}
	if got := c.headsOf(remote); got != want && !c.mamba() {
		return fmt.Errorf("AssertionError: SPLIT region 0: remote P KV block_len is that of %d heads, "+
			"must be of %d", got, want)
	}
	return nil
}

// Slowed returns the time of a read that would take whole between two single ranks over one link. Each rank
// has its own link; the busiest link decides.
func (c *Config) Slowed(whole time.Duration, remote int) time.Duration {
	ours := float64(c.TensorParallel)
	share := float64(c.headsOf(c.TensorParallel)) / float64(c.KVHeads)
	return time.Duration(float64(whole) * share * max(1, ours/float64(max(1, remote))))
}

// Misread changes contents as if the blocks had been read from the wrong ranks.
func Misread(contents []uint64) {
	for i, c := range contents {
		contents[i] = mix(c, misread)
	}
}

const misread = 0x3C6EF372FE94F82B

// posts returns the number of transfers that each rank posts for one read, one after another.
func (c *Config) posts(remote int) int { return max(1, remote/c.TensorParallel) }

// descriptors returns the number of descriptors of each transfer of a read from blocks theirs into blocks
// ours. With different numbers of ranks, heads of other ranks lie between adjacent blocks. Then no blocks
// share a descriptor.
func (c *Config) descriptors(ours []int32, theirs []int, remote int) int {
	if remote == c.TensorParallel {
		return c.Layers * runs(ours, theirs)
	}
	return c.Layers * len(theirs)
}
