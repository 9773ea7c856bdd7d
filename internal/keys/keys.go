// Package keys knows client keys by the hashes of their secrets.
package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"iter"
	"slices"
)

// Key is what the router knows of a client key. Immutable.
type Key struct {
	Name    string   // in logs, records, metrics and traces
	Lasting string   // a name that stays the same while other keys come and go
	Tenant  string   // owner of the key
	Group   uint32   // a hash of Tenant, not 0
	Models  []string // that the key may use; empty: all
	Limits  Limits
	Class   string   // of the key's requests; empty: the default class
	Classes []string // that a request may ask for
	KVHints bool     // engines get the kv_hints of the key's requests
	Weight  float64  // of the share of its tenant; 0: no shares are kept
	Salt    string   // of the tenant's blocks in prefix caches, see [TenantSalt]; "" for none
	Flows   *Flows   // of the tenant; nil if no shares are kept
	// What the key uses; nil without limits.
	Account *Account
	Hash    [sha256.Size]byte // of the secret
}

// AllowsAll reports whether the key may use every model. A nil key may.
func (k *Key) AllowsAll() bool { return k == nil || len(k.Models) == 0 }

// Allows reports whether the key may use a model. A nil key may use every model.
func (k *Key) Allows(model string) bool {
	return k.AllowsAll() || slices.Contains(k.Models, model)
}

// TenantSalt is the salt of a tenant's blocks. A client that does not know the secret cannot make a salt.
func TenantSalt(secret, tenant string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(tenant))
	return "\x1ftenant-" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Table says which clients are let in: all, or those that show the secret of a key. The zero value lets
// nobody in. Immutable: a reload makes another table. Safe for concurrent use.
type Table struct {
	open   bool // no keys were meant
	byHash map[[sha256.Size]byte]*Key
	byName map[string]*Key
}

// LongestSecret is how many bytes of a presented secret are looked at. No key has a longer secret.
const LongestSecret = 512

// Everybody returns a table that lets everybody in, without a key.
func Everybody() *Table { return &Table{open: true} }

// NewTable makes a table of list, whose names and hashes differ. Keys with limits get their accounts from
// all.
func NewTable(list []Key, all *Accounts) *Table {
	t := &Table{
		byHash: make(map[[sha256.Size]byte]*Key, len(list)), byName: make(map[string]*Key, len(list)),
	}
	for i := range list {
		k := &list[i]
		t.byHash[k.Hash], t.byName[k.Name] = k, k
		if k.Limits != (Limits{}) {
			k.Account = all.of(k.Name)
		}
	}
	return t
}

// Open reports whether everybody is let in, without a key.
func (t *Table) Open() bool { return t.open }

// Limits reports whether the table has a key with this name and with limits.
func (t *Table) Limits(name string) bool {
	k := t.byName[name]
	return k != nil && k.Account != nil
}

// Without returns the names of the keys that other does not have, in no order.
func (t *Table) Without(other *Table) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range t.byName {
			if other.byName[name] == nil && !yield(name) {
				return
			}
		}
	}
}

// Find returns the key with the presented secret, nil where there is none. It keeps nothing of the secret.
//
// The time of Find tells a client nothing about the keys. Find hashes the presented secret once, whether a
// key has it or not, so the time depends on the length that the client chose itself. The look-up then
// compares hashes. Its time could at most tell how far the hash of the presented secret agrees with a stored
// hash. A client cannot use this: it cannot choose secrets by their hashes, and even a whole stored hash is
// no secret, since SHA-256 cannot be inverted. So a key file may be read without giving keys away. The map
// also mixes the hash with a number that each process draws. The number of keys does not change the time of
// a look-up.
func (t *Table) Find(secret string) *Key {
	var text [LongestSecret]byte // on the stack: a conversion of the string would allocate
	if secret == "" || len(secret) > len(text) {
		return nil
	}
	return t.byHash[sha256.Sum256(text[:copy(text[:], secret)])]
}
