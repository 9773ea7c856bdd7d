package kvevents

import (
	"testing"
	"time"

	"github.com/pebbe/zmq4"
)

// A paused publisher answers a replay request only after Resume. The request races with the goroutine of the
// publisher, which goes to sleep.
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

// await checks whether the client gets a reply within atMost.
func await(t *testing.T, client *zmq4.Socket, atMost time.Duration, want bool) {
	t.Helper()
	poller := zmq4.NewPoller()
	poller.Add(client, zmq4.POLLIN)
	ready, err := poller.Poll(atMost)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(ready) > 0; got != want {
		t.Fatalf("got a reply %t within %s, want %t", got, atMost, want)
	}
}

// skipToEnd reads replies up to the end marker of a replay.
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
