package scoring

// Prefill holds the facts of a replica that could prefill a request.
type Prefill struct {
	Queue         // its Arrivals are at least the candidates' mean
	Pull  float64 // seconds to pull blocks from another engine before the prefill
	Warm  float64 // seconds to prefill the tokens behind the matched prefix, and behind the pulled blocks
	Read  float64 // seconds to read matched blocks back to the GPU
	Usage float64 // share of KV in use, 0..1, NaN unknown

	Evicts float64 // seconds to compute again what it evicts for the request and needs soon

	Outbox   float64 // seconds of transfers that it has promised already
	Leaving  float64 // prompts per second whose blocks leave it
	Failures float64 // expected cost of its failures, in seconds

	Blocks  float64 // matched blocks, for raw units
	Waiting float64 // requests waiting, for raw units
}

// Ready returns the seconds until the replica has computed the prompt.
func (p *Prefill) Ready() float64 { return p.Wait + p.Pull + p.Warm + p.Read }

// Decode holds the facts of a replica that could decode a request.
type Decode struct {
	Room     float64 // seconds until it has room
	Running  float64 // sequences that decode on it, or will
	Marginal float64 // seconds that this request adds to each of its steps
	Step     float64 // seconds of one decode step with this request in the batch
	// Seconds of the step that makes the first token after a transfer, equal for all candidates.
	First  float64
	Output float64 // expected tokens of the answer
	Usual  float64 // mean tokens of the answers that decode on it; 0 unknown
	Later  float64 // seconds by which the last token comes later than on the fastest replica of the pool
	Usage  float64 // share of KV in use or reserved, 0..1, NaN unknown

	Missing  int     // tokens whose blocks would be transferred
	Posting  float64 // seconds without a step for each of the missing tokens
	Inbound  float64 // seconds of other transfers to it that remain when the prompt is computed
	Arriving float64 // prompts per second whose blocks come to it
	Failures float64 // expected cost of its failures with transferred blocks, in seconds

	Waiting float64 // requests waiting, for raw units

	Stakes Stakes

	Local Local
}

// Local holds the facts of a decode replica that would also prefill the request.
type Local struct {
	Queue            // of local prefills; its Arrivals are all requests to the replica
	Pull     float64 // as in [Prefill]
	Warm     float64 // as in [Prefill]
	Read     float64 // as in [Prefill]
	Active   float64 // sequences that stop during the prefill
	Busy     float64 // seconds for which earlier prompts keep out other requests
	Piece    float64 // seconds of a piece; 0 if the prompt is sent whole
	Between  float64 // seconds of decode steps between its pieces
	Delayed  float64 // total seconds that the prefill delays requests whose blocks arrive meanwhile
	Failures float64 // expected cost of its failures with whole requests, in seconds

	Blocks float64 // matched blocks, for raw units
}
