package core

import (
	"fmt"
	"time"
)

// This file is what vLLM 0.32.0 does with the tensor-parallel ranks of two engines
// (kv_connector/v1/nixl/base_worker.py, kv_connector/utils.py). Each rank holds the KV of its heads. So a
// rank of the decode engine reads a part of one prefill rank's blocks, or the blocks of several prefill
// ranks. Tables, schedules and contents are the same on all ranks: only a whole engine is simulated.

// checkRanks is what a model asserts as it loads: heads are split evenly, or each has as many copies.
func (c *Config) checkRanks() error {
	if c.KVHeads%c.TensorParallel != 0 && c.TensorParallel%c.KVHeads != 0 {
		return fmt.Errorf("tensor-parallel size %d: want a divisor or a multiple of the model's %d KV heads",
			c.TensorParallel, c.KVHeads)
	}
	return nil
}

// CheckRanks says why the model does not load on so many ranks, nil if it does. Defaults are filled in first.
func (c Config) CheckRanks() error {
	c = c.withDefaults()
	return c.checkRanks()
}

// headsOf is how many KV heads each of an engine's ranks holds.
func (c *Config) headsOf(ranks int) int { return max(1, c.KVHeads/ranks) }

// mamba says whether the model has such layers.
func (c *Config) mamba() bool {
	for _, g := range c.Groups {
		if g.Kind == "mamba" {
			return true
		}
	}
	return false
}

// ratio is how many of our ranks read from one of the peer's; negative: one of ours reads from so many.
func (c *Config) ratio(remote int) (int, error) {
	ours := c.TensorParallel
	switch {
	case remote < 1: // ZeroDivisionError, TypeError, or ranks that no engine has
		return 0, fmt.Errorf("tp_size of the params is no number of ranks")
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

// AsksFor is the highest rank that our ranks begin their handshakes with, if the params say that the peer has
// claimed ranks. It is an error where they cannot divide the peer's ranks among them: then they ask nobody.
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

// CanRead says why our ranks cannot read from an engine that has remote ranks, if the params say claimed
// (_validate_remote_agent_handshake). nil if they can.
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

// Slowed is how long a read takes that would take whole if one rank read from one rank over one link. Each
// rank has its own link. The busiest one decides.
func (c *Config) Slowed(whole time.Duration, remote int) time.Duration {
	ours := float64(c.TensorParallel)
	share := float64(c.headsOf(c.TensorParallel)) / float64(c.KVHeads)
	return time.Duration(float64(whole) * share * max(1, ours/float64(max(1, remote))))
}

// Misread changes contents to those of blocks that were read from other ranks than hold them.
func Misread(contents []uint64) {
	for i, c := range contents {
		contents[i] = mix(c, misread)
	}
}

const misread = 0x3C6EF372FE94F82B

// posts is how many transfers each of our ranks posts for one read, one after the other.
func (c *Config) posts(remote int) int { return max(1, remote/c.TensorParallel) }

// descriptors is how many each transfer of a read has: from the peer's blocks theirs into ours. Heads of
// other ranks lie between a block's and the next one's, so only equal sizes let neighbours share a
// descriptor.
func (c *Config) descriptors(ours []int32, theirs []int, remote int) int {
	if remote == c.TensorParallel {
		return c.Layers * runs(ours, theirs)
	}
	return c.Layers * len(theirs)
}
