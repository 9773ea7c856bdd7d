// Package answercache keeps answers for requests that ask the same again. It has the key of a question, the
// kept form of an answer, the memory that holds answers, and computations that several requests listen to.
//
// The callers decide which requests and answers may be kept. Everything here is safe for concurrent use.
package answercache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Key names a question: equal keys have equal answers.
type Key [sha256.Size]byte

// String returns the key in hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// keyVersion changes whenever the form of a question or of a kept answer changes. Answers that other versions
// have kept are never found.
const keyVersion = "tandem answer 1"

// Question holds everything on which an answer depends. Fields that do not apply are empty.
type Question struct {
	Surface string // the API: its path
	Tenant  string // the reader of the answer; questions of two tenants are two questions
	Model   Model
	Request []byte // the question, in a canonical form
}

// Model is the model that answers.
type Model struct {
	Name    string // as it is asked for
	Root    string // where its files were loaded from
	Version string // of the engine
	Adapter string // where the adapter was loaded from, "" for a base model
}

// Key returns the key of the question.
func (q *Question) Key() (k Key) {
	h := sha256.New()
	var length [8]byte
	for _, part := range [...]string{
		keyVersion, q.Surface, q.Tenant, q.Model.Name, q.Model.Root, q.Model.Version, q.Model.Adapter,
	} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:]) // otherwise a part could continue in the next
		h.Write([]byte(part))
	}
	h.Write(q.Request)
	h.Sum(k[:0])
	return k
}
