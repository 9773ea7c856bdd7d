package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/engine/enginetest"
	"github.com/tandem-router/tandem/internal/kvevents"
)

func publisher(t *testing.T) string {
	t.Helper()
	p, err := kvevents.NewPublisher(kvevents.PublisherOptions{Endpoint: "tcp://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	at, _ := p.Endpoints()
	return at
}

// The error says in which way an address is wrong.
func TestListens(t *testing.T) {
	for _, c := range []struct {
		name, at string
		want     layer
		says     string
	}{
		{"publisher", publisher(t), 0, ""},
		{"no listener", "tcp://127.0.0.1:" + closed, atTCP, "refused"},
		{
			"not ZeroMQ", "tcp://" + enginetest.HangUp(t, 0, "SSH-2.0-OpenSSH_9.2\r\n"), atZMTP,
			`no ZeroMQ greeting but "SSH-2.0-Op"`,
		},
		{"short", "tcp://" + enginetest.HangUp(t, 0, "HI"), atZMTP, `no ZeroMQ greeting but "HI"`},
		{"no greeting", "tcp://" + enginetest.HangUp(t, 0, ""), atZMTP, "no ZeroMQ greeting: EOF"},
		{"no port", "tcp://127.0.0.1", atAddress, "missing port"},
		{"another scheme", "udp://x:1", atAddress, "neither a tcp:// nor an ipc:// address"},
		{"no socket file", "ipc:///nowhere/at/all", atTCP, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := listens(t.Context(), c.at)
			if (err == nil) != (c.want == 0) ||
				err != nil && (err.layer != c.want || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got error %v, want layer %v with %q", err, c.want, c.says)
			}
		})
	}
}

// The verdict follows the state of the replay: batches that were given up are a failure, and batches that
// still arrive are a warning.
func TestReplayVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		a    arrival
		want Status
		seen string
	}{
		{
			"whole",
			arrival{live: true, stats: kvevents.Stats{Batches: 9000, Replays: 5}},
			OK,
			"9000 batches in 2s, asked for 5 times",
		},
		{
			"given up",
			arrival{live: true, stats: kvevents.Stats{Partial: true, Replays: 3, Timeouts: 3}},
			Failed,
			"3 times asked",
		},
		{"still arriving", arrival{stats: kvevents.Stats{Batches: 7, Replays: 1}}, Warning, "7 batches came"},
		{"nothing", arrival{stats: kvevents.Stats{Replays: 2}}, Failed, "nothing came"},
	} {
		c.a.took = 2 * time.Second
		v := replayAnswers(&rank{s: &server{}, link: &link{joined: c.a}})
		if v.status != c.want || !strings.Contains(v.seen, c.seen) {
			t.Errorf("%s: got %+v, want status %v with %q", c.name, v, c.want, c.seen)
		}
	}
}
