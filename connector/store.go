package connector

// Store is the connector of engines that share a store of KV blocks. P saves what it computes, and D finds it
// there by the content of its own prompt. Nothing goes from leg to leg: no parameters, no lease, and nothing
// to give back. A block that D does not find, because P's save is not done or the store has evicted it, is
// computed again: the answer is right, and only the usage tells.
type Store struct {
	Kind   string // vLLM's name of the connector
	Series string // see [Traits.Series]
	Chunk  int    // see [Traits.Chunk]

	NoAdapters bool // see [Traits.NoAdapters]
}

var _ Connector = Store{}

// lmcache is LMCache with a server. Its connector without a server leaves out cache_salt too.
var lmcache = Store{Kind: "LMCacheMPConnector", Chunk: 256, NoAdapters: true}

// Traits are those of all stores.
func (s Store) Traits() Traits {
	return Traits{
		Order: Shared, Late: Recomputes, NoParams: true, Engines: s.Kind, Series: s.Series, Chunk: s.Chunk,
		NoAdapters: s.NoAdapters,
	}
}

// EditPrefill only names the leg.
func (Store) EditPrefill(leg *Leg, pair Pair) error {
	leg.identify(pair)
	return nil
}

// EditDecode only names the leg. There is no reply.
func (Store) EditDecode(leg *Leg, pair Pair, _ *Reply, _ Use) error {
	leg.identify(pair)
	return nil
}
