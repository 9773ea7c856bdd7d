package orchestrator

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/pebbe/zmq4"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// fakePublisher publishes any KV events in any order, as a test says. It is an XPUB socket, which reports
// subscriptions, so that a test can wait for its subscriber. Only one goroutine may use it.
type fakePublisher struct {
	t        *testing.T
	z        *zmq4.Context
	pub      *zmq4.Socket
	endpoint string
	at       time.Time // the time of all batches, so that a repeated batch is identical
}

func newFakePublisher(t *testing.T) *fakePublisher {
	z, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	m := &fakePublisher{t: t, z: z, at: time.Now()}
	m.pub, m.endpoint = m.bind(zmq4.XPUB, anyPort)
	t.Cleanup(func() {
		m.pub.Close()
		_ = z.Term()
	})
	return m
}

// anyPort makes the socket choose a free port.
const anyPort = "tcp://127.0.0.1:*"

// bind opens a socket and returns its address. If the address is still in use, it retries for a while.
func (m *fakePublisher) bind(kind zmq4.Type, endpoint string) (s *zmq4.Socket, at string) {
	var err error
	s, err = m.z.NewSocket(kind)
	if err == nil {
		err = s.SetLinger(0)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	for range 200 {
		if err = s.Bind(endpoint); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil {
		at, err = s.GetLastEndpoint()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return s, at
}

// mute opens a replay address that never answers.
func (m *fakePublisher) mute() string {
	s, at := m.bind(zmq4.ROUTER, anyPort)
	m.t.Cleanup(func() { s.Close() }) // runs before the context ends
	return at
}

// again closes the publisher and opens a new one at the same address.
func (m *fakePublisher) again() {
	m.pub.Close()
	m.pub, _ = m.bind(zmq4.XPUB, m.endpoint)
}

// subscribed waits for a subscriber.
func (m *fakePublisher) subscribed() {
	m.t.Helper()
	if err := m.pub.SetRcvtimeo(10 * time.Second); err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.pub.RecvBytes(0); err != nil {
		m.t.Fatal("no subscriber came: ", err)
	}
}

// say publishes a batch of events.
func (m *fakePublisher) say(seq uint64, rank int, events ...kv.Event) {
	m.raw(seq, kvevents.Encode(nil, &kvevents.EncodeBatch{At: m.at, Rank: rank, Events: events}, kvevents.Map))
}

// raw publishes a payload of any bytes.
func (m *fakePublisher) raw(seq uint64, payload []byte) {
	if _, err := m.pub.SendMessage("", binary.BigEndian.AppendUint64(nil, seq), payload); err != nil {
		m.t.Fatal(err)
	}
}
