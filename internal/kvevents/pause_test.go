package kvevents

import (
	"testing"
	"time"

	"github.com/pebbe/zmq4"
)

// A paused publisher answers no replay request. It answers the request after Resume. The request races with
// the goroutine of the publisher, which goes to sleep.
func TestAPausedPublisherAnswersAfterResume(t *testing.T) {
	e := newEngine(t, PublisherOptions{})
	client, err := zmq4.NewSocket(zmq4.DEALER)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Connect(e.source().Replay); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		e.Pause()
		e.publish(1)
		if _, err := client.SendMessage("", seqFrame(0)); err != nil {
			t.Fatal(err)
		}
		await(t, client, 3*time.Millisecond, false)
		e.Resume()
		await(t, client, time.Minute, true)
		skipToEnd(t, client)
	}
}

// await waits until the client has a reply, and compares that with the wish.
func await(t *testing.T, client *zmq4.Socket, atMost time.Duration, want bool) {
	t.Helper()
	poller := zmq4.NewPoller()
	poller.Add(client, zmq4.POLLIN)
	ready, err := poller.Poll(atMost)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(ready) > 0; got != want {
		t.Fatalf("a reply within %s: got %t, want %t", atMost, got, want)
	}
}

// skipToEnd reads replies up to the marker that ends a replay.
func skipToEnd(t *testing.T, client *zmq4.Socket) {
	t.Helper()
	for {
		frames, err := client.RecvMessageBytes(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, end, ok := readReply(frames); !ok || end {
			return
		}
	}
}
