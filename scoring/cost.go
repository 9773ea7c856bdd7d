package scoring

// OnPrefill is what a request would meet on a replica that could prefill it.
type OnPrefill struct {
	Wait  float64 // seconds of work ahead of it
	Cold  float64 // seconds of its prefill with nothing cached
	Warm  float64 // seconds of its prefill behind the matched prefix
	Share float64 // matched share of the prompt, 0..1
	Rho   float64 // utilisation of the replica, 0..1 and more when overbooked
	Usage float64 // share of KV in use, 0..1, NaN unknown

	Blocks  float64 // matched blocks, for raw units
	Waiting float64 // requests waiting, for raw units
}

// OnDecode is what it would meet on a replica that could decode it.
type OnDecode struct {
	Room     float64 // seconds until there is room
	Running  float64 // sequences that decode there, or will
	Marginal float64 // seconds that it adds to each of their steps
	Output   float64 // tokens that it is expected to generate
	Later    float64 // seconds by which its own last token comes later than from the fastest replica of the pool, for how fast the two are alone
	Usage    float64 // share of KV in use or promised, 0..1, NaN unknown

	Waiting float64 // requests waiting, for raw units
}

// OnLocal is what it would meet on a decode replica that prefills it too, besides what OnDecode says.
type OnLocal struct {
	Wait     float64 // seconds of other local prefills ahead of it
	Cold     float64 // as in OnPrefill
	Warm     float64
	Share    float64
	Active   float64 // sequences that stand still meanwhile
	Arrivals float64 // requests a second that come to the replica
	Delayed  float64 // seconds that requests whose blocks come meanwhile wait for it, all together
	Reserved float64 // share of KV in use or promised, 0..1
	Rho      float64 // share of its time that the replica spends on local prefills

	Blocks float64 // matched blocks, for raw units
}

// pressureSeconds is the pressure of a KV cache that is half full.
const pressureSeconds = 0.15

// Pressure turns a share of KV in use into seconds of expected trouble: preemption and evicted prefixes. NaN gives 0.
func Pressure(usage float64) float64 {
	if !(usage > 0) {
		return 0
	}
	usage = min(usage, 0.98)
	return pressureSeconds * usage / (1 - usage)
}

// Prefill returns the terms of o; the others are zero.
func (w *Weights) Prefill(o OnPrefill) Terms {
	if w.Units == Raw {
		return Terms{Wait: w.Beta * o.Waiting, Prefill: -w.Alpha.At(0) * o.Blocks, Pressure: w.Gamma * known(o.Usage)}
	}
	return Terms{
		Wait:     w.Beta * o.Wait,
		Prefill:  w.Alpha.At(o.Rho) * w.work(o.Cold, o.Warm, o.Share),
		Pressure: w.Gamma * Pressure(o.Usage),
	}
}

// Decode returns the terms of o; the others are zero.
func (w *Weights) Decode(o OnDecode) Terms {
	if w.Units == Raw {
		return Terms{Wait: w.Beta * o.Waiting, Pressure: w.Gamma * known(o.Usage)}
	}
	return Terms{
		Room:     o.Room,
		Decode:   w.DecodePenalty * o.Running * o.Marginal * o.Output,
		Answer:   o.Later,
		Pressure: w.Gamma * Pressure(o.Usage),
	}
}

// Local returns the terms that prefilling on the decode replica adds to those of [Weights.Decode]. Its KV is held from the start, so its seconds cost
// as much more as the replica is full: unpriced, local plans ran away when decode filled up. They delay later ones, too, as on a prefill replica, and whoever
// comes to the replica meanwhile waits, on average for half of it.
func (w *Weights) Local(o OnLocal) Terms {
	alpha := w.Alpha.Value
	if w.Alpha.Auto {
		alpha = 1
	}
	if w.Units == Raw {
		return Terms{Prefill: -alpha * o.Blocks}
	}
	return Terms{
		Wait:         w.Beta * o.Wait,
		Prefill:      alpha * max(premium(o.Reserved), premium(o.Rho)) * w.work(o.Cold, o.Warm, o.Share),
		Interference: w.DecodePenalty*o.Active*stall(o.Warm) + w.Beta*(o.Delayed+hold(o.Warm, o.Arrivals)),
	}
}

// A second of standing still counts once in a pause that is hardly noticed, and three times in one of two seconds and more.
const (
	stallGrows = 1 // a second
	stallLong  = 2 // seconds
)

// stall weighs the seconds for which a stream stands still. One long pause is worse than many short ones that add up to it: who reads along notices no tenth of a
// second, and of a short answer a long one is most of its time.
func stall(seconds float64) float64 { return seconds * (1 + stallGrows*min(seconds, stallLong)) }

// work returns the seconds that count: warm where the match is worth following, else cold.
func (w *Weights) work(cold, warm, share float64) float64 {
	if share >= w.AffinityShare || cold-warm >= w.AffinitySaved.Seconds() {
		return warm
	}
	return cold
}

func known(x float64) float64 {
	if x != x {
		return 0
	}
	return x
}
