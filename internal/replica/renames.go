package replica

// Renames maps old names of replicas to new ones. The new name is "" if the replica has left and another
// replica has its name. A name that is missing stays. Names may be exchanged.
type Renames map[ID]ID

// RenamesOf compares the old names of replicas with their present names. E identifies a replica under any
// name.
func RenamesOf[E comparable](was, now map[ID]E) Renames {
	called := make(map[E]ID, len(now))
	for id, e := range now {
		if other, twice := called[e]; !twice || id < other {
			called[e] = id
		}
	}
	renames := Renames{}
	for id, e := range was {
		if is, stays := called[e]; stays && now[id] != e {
			renames[id] = is
		}
	}
	renames.vacate()
	return renames
}

// vacate maps a name to "" if another replica has taken it and its old replica has no new name.
func (r Renames) vacate() {
	var got []ID
	for _, is := range r {
		got = append(got, is)
	}
	for _, is := range got {
		if _, moved := r[is]; !moved {
			r[is] = ""
		}
	}
}

// Now returns the name that the replica of a name has now; false where it has none.
func (r Renames) Now(was ID) (is ID, has bool) {
	if is, renamed := r[was]; renamed {
		return is, is != ""
	}
	return was, true
}

// Rekey returns m under present names. of returns the present key of an old key, and reports whether there
// is one.
func Rekey[K comparable, V any](m map[K]V, of func(was K) (is K, has bool)) map[K]V {
	rekeyed := make(map[K]V, len(m))
	for was, v := range m {
		if is, has := of(was); has {
			rekeyed[is] = v
		}
	}
	return rekeyed
}
