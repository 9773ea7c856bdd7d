package answercache

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var then = time.Unix(1_800_000_000, 0)

func key(n int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(n))
	return k
}

// A changed part gives another key, and so does a part whose end moves into the next part.
func TestKeysDiffer(t *testing.T) {
	base := Question{
		Surface: "/v1/x", Tenant: "t", Model: Model{Name: "m", Root: "r", Version: "1", Adapter: "a"},
		Request: []byte("{}"),
	}
	seen := map[Key]bool{base.Key(): true}
	for name, change := range map[string]func(*Question){
		"surface": func(q *Question) { q.Surface = "/v1/y" },
		"tenant":  func(q *Question) { q.Tenant = "" },
		"name":    func(q *Question) { q.Model.Name = "n" },
		"root":    func(q *Question) { q.Model.Root = "r2" },
		"version": func(q *Question) { q.Model.Version = "2" },
		"adapter": func(q *Question) { q.Model.Adapter = "" },
		"request": func(q *Question) { q.Request = []byte("{ }") },
		"border":  func(q *Question) { q.Model.Root, q.Model.Version = "r1", "" },
		"borders": func(q *Question) { q.Model.Version, q.Model.Adapter = "1a", "" },
	} {
		other := base
		change(&other)
		if k := other.Key(); seen[k] {
			t.Errorf("%s: the key equals an earlier key", name)
		} else {
			seen[k] = true
		}
	}
	if again := base; again.Key() != base.Key() {
		t.Error("the same question has two keys")
	}
}

func TestMemoryGivesWhatWasPut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory(1 << 20)
		body := []byte(strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(0, 300).Draw(t, "times")))
		a := &Answer{
			Made: then, ContentType: "application/json", Stream: rapid.Bool().Draw(t, "stream"), Events: 3, Body: body,
			Makers: []Maker{{Replica: "d0", Server: "http://d0", Started: 1.5}},
		}
		m.Put(key(1), a, then.Add(time.Minute))
		got := m.Get(key(1), then.Add(59*time.Second))
		if got == nil || !bytes.Equal(got.Body, a.Body) {
			t.Fatalf("got %v, want %d bytes", got, len(body))
		}
		got.Body = a.Body
		if !reflect.DeepEqual(got, a) {
			t.Fatalf("got %+v, want %+v", got, a)
		}
		if m.Get(key(2), then) != nil {
			t.Fatal("an answer to another question")
		}
		if m.Get(key(1), then.Add(time.Minute)) != nil || m.Stats().Answers != 0 {
			t.Fatal("an answer that has expired")
		}
	})
}

// The memory stays within its limit of bytes after every put. A lower limit drops the answers that are too
// much.
func TestMemoryIsBounded(t *testing.T) {
	const most = 64 << 10
	m := NewMemory(most)
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		body := make([]byte, dice.IntN(8<<10))
		for j := range body {
			body[j] = byte(dice.Uint32())
		}
		m.Put(key(i), &Answer{Made: then, Body: body}, then.Add(time.Hour))
		if s := m.Stats(); s.Bytes > most {
			t.Fatalf("%d bytes after %d answers, may have %d", s.Bytes, i+1, most)
		}
	}
	s := m.Stats()
	if s.Evictions == 0 || s.Answers == 0 {
		t.Errorf("%+v after much more than the limit", s)
	}
	m.Resize(most / 4)
	m.Put(key(-1), &Answer{Made: then}, then.Add(time.Hour))
	if s := m.Stats(); s.Bytes > most/4 {
		t.Errorf("%d bytes, may have %d", s.Bytes, most/4)
	}
}

// A stream of small events is stored in a fraction of its bytes. A body that does not shrink is stored
// unchanged.
func TestMemoryCompressesWhatPays(t *testing.T) {
	m := NewMemory(1 << 20)
	event := `data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"word"}}]}` + "\n\n"
	events := []byte(strings.Repeat(event, 300))
	m.Put(key(1), &Answer{Made: then, Body: events}, then.Add(time.Hour))
	if s := m.Stats(); s.Bytes > int64(len(events)/5) {
		t.Errorf("%d bytes for a stream of %d", s.Bytes, len(events))
	}
	noise := make([]byte, 4<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	if p := newPacker().pack(&Answer{Body: noise}); p.zipped {
		t.Error("noise is compressed")
	}
}
