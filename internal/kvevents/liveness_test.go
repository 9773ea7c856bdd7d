package kvevents

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPings makes a handshake with a follower as a PUB socket does (ZMTP 3.1,
// https://rfc.zeromq.org/spec/37/). It reads the pings of the follower and the silence that they allow.
func TestPings(t *testing.T) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_, r, _ := follow(t, Source{Endpoint: "tcp://" + in.Addr().String()},
		Options{Heartbeat: 300 * time.Millisecond})
	conn, err := in.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	io.WriteString(conn, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"+strings.Repeat("\x00", 48)+
		"\x04"+string(rune(len(ready)))+ready)
	r.isLive(t)
	ping, ttl := []byte("\x04PING"), make([]byte, 2)
	for range 2 {
		if err := readTo(conn, ping); err != nil {
			t.Fatalf("got no ping: %v", err)
		}
		if _, err := io.ReadFull(conn, ttl); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint16(ttl); got != 15 {
			t.Errorf("got %d tenths of a second of allowed silence, want 15", got)
		}
		conn.Write([]byte("\x04\x05\x04PONG"))
	}
	r.until(t, "stale, when pings go unanswered", func() bool { return r.state == Stale })
}

// readTo reads up to the end of the first mark.
func readTo(conn net.Conn, mark []byte) error {
	var last []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(last, mark) {
		if _, err := conn.Read(one); err != nil {
			return err
		}
		last = append(last[max(0, len(last)-len(mark)):], one[0])
	}
	return nil
}

// In TestFailingCostsNothing, followers dial a closed port, and a port that accepts and closes at once. They
// must wait longer after each failure instead of dialing in a busy loop.
func TestFailingCostsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for two seconds")
	}
	const n = 32
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	dials := 0
	accepting.Go(func() {
		for {
			conn, err := in.Accept()
			if err != nil {
				return
			}
			dials++
			conn.Close()
		}
	})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	shared := new(Context)
	for _, at := range []string{in.Addr().String(), gone.Addr().String()} {
		src := Source{Endpoint: "tcp://" + at, Replay: "tcp://" + at}
		for range n {
			_, r, _ := follow(t, src, Options{Context: shared})
			r.until(t, "a first attempt", func() bool { return len(r.log) > 0 })
		}
	}
	start, cpu := time.Now(), cpuTime(t)
	time.Sleep(2 * time.Second)
	took, used := time.Since(start), cpuTime(t)-cpu
	in.Close()
	accepting.Wait()
	t.Logf("%d followers that fail: %.2f %% of one core, %d dials in %v",
		2*n, 100*float64(used)/float64(took), dials, took)
	if used > took/6 {
		t.Errorf("got %v of processor time in %v, want at most a sixth", used, took)
	}
	// Each follower dials after 0, 0.2, 0.6 and 1.4 s plus jitter, and once for the replay address. Without the
	// backoff there would be eight dials.
	if most := 7 * n; dials > most {
		t.Errorf("got %d dials, want at most %d", dials, most)
	}
}

func TestBackoff(t *testing.T) {
	now := time.Unix(1000, 0)
	b := backoff{base: 200 * time.Millisecond, rnd: rand.New(rand.NewPCG(1, 2))}
	fails := func(want time.Duration) {
		t.Helper()
		if got := b.lost(now); got < want || got > want*3/2 {
			t.Errorf("got a wait of %v, want %v to one and a half times as much", got, want)
		}
	}
	lasts := func(d time.Duration) {
		b.connected(now)
		now = now.Add(d)
	}
	fails(200 * time.Millisecond)
	fails(400 * time.Millisecond)
	lasts(maxReconnect - 1) // an engine that crashes soon counts as unreachable
	fails(800 * time.Millisecond)
	fails(1600 * time.Millisecond)
	fails(3200 * time.Millisecond)
	for range 100 {
		fails(maxReconnect)
	}
	lasts(maxReconnect)
	if got := b.lost(now); got != 0 {
		t.Errorf("got a wait of %v after a connection that lasted, want none", got)
	}
	fails(200 * time.Millisecond)
}

// TestStateReasons checks that each change of state has a reason for operators.
func TestStateReasons(t *testing.T) {
	e := newEngine(t, PublisherOptions{BufferSteps: 3})
	e.publish(3)
	_, r, _ := follow(t, e.source(), audited())
	r.through(t, 0, 2)
	e.Drop(5)
	e.publish(6)
	r.through(t, 6, 8)
	e.Close()
	r.until(t, "stale", func() bool { return r.state == Stale })
	r.mu.Lock()
	defer r.mu.Unlock()
	story := r.story()
	for _, want := range []string{
		"state syncing (connecting)", "state syncing (batches 3 to ",
		"forget (batch 2 is no longer in the replay buffer, which begins with 6)",
		"state stale (batch 2 is no longer", "state live (", "state stale (connection lost)",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("got %s; want %q in it", story, want)
		}
	}
}
