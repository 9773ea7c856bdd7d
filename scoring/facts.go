package scoring

// Prefill is the facts of a replica that could prefill a request.
type Prefill struct {
	Queue         // its Arrivals are no fewer than the mean of the candidates
	Warm  float64 // seconds of its prefill behind the matched prefix
	Usage float64 // share of KV in use, 0..1, NaN unknown

	Outbox   float64 // seconds of transfers that it has promised to others
	Leaving  float64 // prompts a second whose blocks leave it
	Failures float64 // seconds that its failures are expected to cost

	Blocks  float64 // matched blocks, for raw units
	Waiting float64 // requests waiting, for raw units
}

// Ready returns the seconds until it has computed the prompt.
func (p *Prefill) Ready() float64 { return p.Wait + p.Warm }

// Decode is the facts of a replica that could decode a request.
type Decode struct {
	Room     float64 // seconds until there is room
	Running  float64 // sequences that decode there, or will
	Marginal float64 // seconds that it adds to each of their steps
	Step     float64 // seconds of one decode step with this request in the batch
	// Seconds of the step that makes the first token of blocks which came, the same for all candidates.
	First  float64
	Output float64 // tokens that it is expected to generate
	Usual  float64 // tokens of the answers that decode there, on average; 0 unknown
	Later  float64 // seconds by which its own last token comes later than from the fastest replica of the pool
	Usage  float64 // share of KV in use or promised, 0..1, NaN unknown

	Missing  int     // tokens of the blocks that would have to be transferred
	Posting  float64 // seconds for which its streams stand still, for each of these tokens
	Inbound  float64 // seconds for which, when the prompt is computed, others' blocks are still to come to it
	Arriving float64 // prompts a second whose blocks come to it
	Failures float64 // seconds that its failures with transferred blocks are expected to cost

	Waiting float64 // requests waiting, for raw units

	Local Local
}

// Local is the facts of a decode replica as one that prefills the request, too.
type Local struct {
	Queue            // of local prefills; its Arrivals are all requests that come to the replica
	Warm     float64 // as in [Prefill]
	Active   float64 // sequences that stand still meanwhile
	Busy     float64 // seconds for which the prompts ahead let no other request in
	Piece    float64 // seconds of a piece, where its prompt is sent in pieces; 0 where it is sent at once
	Between  float64 // seconds for which it waits for others' decode steps between its pieces
	Delayed  float64 // seconds that requests whose blocks come meanwhile wait for it, all together
	Failures float64 // seconds that its failures with whole requests are expected to cost

	Blocks float64 // matched blocks, for raw units
}
