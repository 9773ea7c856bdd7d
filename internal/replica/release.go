package replica

// Release is what decides which token ids an engine makes of a text or a chat, as far as engines tell: ids
// of one release mean nothing to another. A part that is not known is empty.
type Release struct {
	Root    string // where the model was loaded from, and with it its tokenizer and its chat template
	Version string // of vLLM, which prepares the messages for the template
}

// Release returns whose token ids the engine's are.
func (f *Facts) Release() Release { return Release{Root: f.Root, Version: f.Version} }

// Agrees reports whether ids of one of the two can be those of the other: no part that both know is
// different.
func (r Release) Agrees(other Release) bool {
	agree := func(a, b string) bool { return a == "" || b == "" || a == b }
	return agree(r.Root, other.Root) && agree(r.Version, other.Version)
}
