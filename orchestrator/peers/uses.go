package peers

import (
	"time"

	"github.com/tandem-router/tandem/internal/keys"
)

// uses is the use of client keys with limits at a router (docs/decisions/0080).
type uses struct {
	Keys    []keys.Use `json:"keys,omitempty"`
	All     bool       `json:"all,omitzero"` // Keys has all keys; otherwise only keys with news
	Version uint64     `json:"version,omitzero"`
}

const (
	allUsesEvery = time.Second     // between two reports of all keys
	usesPatience = 3 * time.Second // the least time for which running requests at a silent router count
)

// usesReported says how much of the use of keys a router has reported.
type usesReported struct {
	version uint64
	allAt   time.Time // when all keys must be reported again
}

// since returns the number of the change from which the next report begins; 0 for a report of all keys.
func (t *usesReported) since(now time.Time) uint64 {
	if now.Before(t.allAt) {
		return t.version
	}
	return 0
}

// note records that u was reported.
func (t *usesReported) note(u *uses, now time.Time) {
	if t.version = u.Version; u.All {
		t.allAt = now.Add(allUsesEvery)
	}
}

// usesQuery is the query parameter with the number of the change from which the asking router needs uses.
const usesQuery = "uses"

// addAge ages the uses by the longest time that the report can have been on its way.
func (u *uses) addAge(by time.Duration) {
	for i := range u.Keys {
		for _, a := range []*keys.Amount{&u.Keys[i].Requests, &u.Keys[i].Tokens} {
			a.Next, a.All = max(0, a.Next-by), max(0, a.All-by)
		}
	}
}
