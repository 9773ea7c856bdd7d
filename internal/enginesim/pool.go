package enginesim

type pool struct{}

func (p *pool) init(c Config) {}

// ResetPrefixCache forgets every cached block, and does nothing but say no while any block is held.
func (e *Engine) ResetPrefixCache() bool { return true }
