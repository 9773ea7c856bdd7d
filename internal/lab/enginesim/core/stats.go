package core

import "time"

// Counters only grow. A restart sets them to zero.
type Counters struct {
	PrefixQueries, PrefixHits     uint64 // tokens looked up, found (vllm:prefix_cache_*)
	ExternalQueries, ExternalHits uint64 // tokens (vllm:external_prefix_cache_*)
	PromptTokens                  uint64
	PromptComputed                uint64 // vllm:prompt_tokens_by_source{local_compute}
	PromptLocal                   uint64 // {local_cache_hit}
	PromptExternal                uint64 // {external_kv_transfer}
	GenerationTokens              uint64
	Preemptions                   uint64
	Finished                      [reasons]uint64 // vllm:request_success, by Reason
	NixlExpired                   uint64          // vllm:nixl_num_kv_expired_reqs
	NixlNotifiedLate              uint64          // vllm:nixl_num_notifications_after_expiry
	NixlFailed                    uint64          // vllm:nixl_num_failed_transfers
	NixlUnsaid                    uint64          // vllm:nixl_num_failed_notifications
	NixlTransfers, NixlBlocks     uint64          // successful reads, and their blocks
	// time of the reads, and the part for posting their descriptors
	NixlReading, NixlPosting time.Duration
	SpecDrafts, SpecDrafted  uint64 // vllm:spec_decode_num_drafts, draft_tokens
	SpecAccepted             uint64 // vllm:spec_decode_num_accepted_tokens
}

// Stats is a snapshot of the engine.
type Stats struct {
	Counters
	Running, Waiting                         int
	WaitingCapacity, WaitingDeferred         int
	FetchToStart, FetchInProgress, FetchDone int // vllm:num_requests_kv_fetch_by_stage
	Blocks, FreeBlocks, Leases               int
	Asleep                                   bool
	SleepLevel                               int     // while Asleep
	Usage                                    float64 // 1 - free/(blocks-1)
	Offloaded, Restored                      uint64  // blocks copied to host memory, and to the GPU
}

// Stats returns a snapshot. It is cheap: a server may call it after each step.
func (e *Engine) Stats() Stats {
	level, asleep := e.Asleep()
	offloaded, restored := e.pool.tier.moved()
	return Stats{
		Asleep: asleep, SleepLevel: level, Offloaded: offloaded, Restored: restored,
		Counters: e.counted.counts,
		Running:  len(e.queues.running), Waiting: e.queues.waiting.len() + len(e.loads.loading),
		WaitingCapacity: e.queues.waiting.len(), WaitingDeferred: len(e.loads.loading),
		FetchToStart: e.loads.toStart, FetchInProgress: len(e.loads.loading) - e.loads.arrived,
		FetchDone: e.loads.arrived,
		Blocks:    len(e.pool.blocks), FreeBlocks: e.pool.free, Leases: e.leasing.leases, Usage: e.pool.usage(),
	}
}

// ResetPrefixCache removes every block from the cache. It returns false and does nothing while a request or a
// lease holds any block. The event goes out with the next step that has work.
func (e *Engine) ResetPrefixCache() bool { return e.pool.reset() }
