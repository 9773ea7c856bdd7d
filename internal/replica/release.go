package replica

// Release identifies the tokenizer and the chat template of an engine, as far as engines tell. Token ids of
// one release mean nothing to another. An unknown part is empty.
type Release struct {
	Root    string // where the model was loaded from, and with it its tokenizer and its chat template
	Version string // of vLLM, which prepares the messages for the template
}

// Release returns the release whose token ids the engine uses.
func (f *Facts) Release() Release { return Release{Root: f.Root, Version: f.Version} }

// Agrees reports whether token ids of one release may be used with the other: no part that both know is
// different.
func (r Release) Agrees(other Release) bool {
	agree := func(a, b string) bool { return a == "" || b == "" || a == b }
	return agree(r.Root, other.Root) && agree(r.Version, other.Version)
}
