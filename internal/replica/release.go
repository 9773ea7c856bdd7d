package replica

// Release identifies the tokenizer and the chat template of an engine, as far as engines and the
// configuration tell. Token ids of one release mean nothing to another. An unknown part is zero.
type Release struct {
	Root     string // where the model was loaded from, and with it its tokenizer and its chat template
	Version  string // of vLLM, which prepares the messages for the template
	Revision string // of the replica
	Sample   uint64 // hash of the ids of a sample text
}

// Release returns the release whose token ids the replica uses. The samples of chats do not count: a template
// may name the day.
func (r *Replica) Release() Release {
	f := &r.Facts
	return Release{Root: f.Root, Version: f.Version, Revision: r.Revision, Sample: f.Tokens[0]}
}

// Agrees reports whether token ids of one release may be used with the other: no part that both know is
// different.
func (r Release) Agrees(other Release) bool {
	return Agree(r.Root, other.Root) && Agree(r.Version, other.Version) && Agree(r.Revision, other.Revision) &&
		Agree(r.Sample, other.Sample)
}

// Agree reports whether two facts are not known to differ: the facts are equal, or one fact is zero, which is
// unknown.
func Agree[T comparable](a, b T) bool {
	var unknown T
	return a == unknown || b == unknown || a == b
}
