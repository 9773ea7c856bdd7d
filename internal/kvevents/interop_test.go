package kvevents

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// system is the Python that has the packages python3-zmq and python3-msgpack of Debian. PATH may have another
// Python first.
const system = "/usr/bin/python3"

// script is a running Python script. It reads lines and writes JSON lines.
type script struct {
	in      io.WriteCloser
	out     *bufio.Reader
	process *os.Process
	end     func() // waits for the end of the script; called at the end of the test at the latest
}

func start(t *testing.T, name string, args ...string) *script {
	t.Helper()
	if out, err := exec.Command(system, "-c", "import zmq, msgpack").CombinedOutput(); err != nil {
		t.Fatalf("this test wants an independent ZeroMQ and msgpack, python3-zmq and python3-msgpack: run `make "+
			"deps-test` (%v: %s)", err, out)
	}
	cmd := exec.CommandContext(t.Context(), system, append([]string{name}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("%s wrote an error: %s", name, stderr.String())
		}
	})
	t.Cleanup(end)
	return &script{in: in, out: bufio.NewReader(out), process: cmd.Process, end: end}
}

func (s *script) tell(format string, args ...any) { fmt.Fprintf(s.in, format+"\n", args...) }

func (s *script) read(into any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// TestFollowPython follows a publisher that shares no code with this package. The follower joins late, gets
// live batches, and sees a gap and a restart.
func TestFollowPython(t *testing.T) {
	for _, tt := range []struct {
		form   string
		frames int
	}{{"map", 4}, {"array", 3}} {
		t.Run(tt.form, func(t *testing.T) {
			py := start(t, "testdata/engine.py", tt.form, fmt.Sprint(tt.frames))
			var at struct{ Endpoint, Replay string }
			if err := py.read(&at); err != nil {
				t.Fatal(err)
			}
			py.tell("publish 5")
			sink := &keeper{recorder: newRecorder()}
			f := NewFollower(Source{Endpoint: at.Endpoint, Replay: at.Replay, Topic: "kv@"}, sink, audited())
			stop := run(t, f)
			defer stop()
			sink.until(t, "the first five", func() bool { return len(sink.seqs) >= 5 })
			py.tell("drop 2")
			py.tell("publish 1")
			sink.through(t, 0, 7)
			sink.checkLast(t, 7, tt.form)
			py.tell("restart")
			py.tell("publish 3")
			sink.through(t, 0, 2)
			if n := sink.count("forget"); n != 1 {
				t.Errorf("got %d calls of Forget, want 1: %s", n, sink.story())
			}
			if s := f.Stats(); s.DecodeErrors+s.Unknown+s.WrongRank > 0 {
				t.Errorf("got stats %+v, want no faults", s)
			}
		})
	}
}

// keeper is a recorder that also keeps the newest batch.
type keeper struct {
	*recorder
	last kv.Batch
}

func (k *keeper) Apply(b *kv.Batch) {
	k.mu.Lock()
	k.last = *b
	k.last.Events = nil
	for _, e := range b.Events {
		e.Hashes = append([]kv.EngineHash(nil), e.Hashes...)
		e.Tokens = append([]kv.Token(nil), e.Tokens...)
		k.last.Events = append(k.last.Events, e)
	}
	k.mu.Unlock()
	k.recorder.Apply(b)
}

func (k *keeper) checkLast(t *testing.T, seq uint64, form string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	want := []kv.Event{
		{Kind: kv.Removed, Hashes: []kv.EngineHash{kv.EngineHash(seq)}},
		{
			Kind: kv.Stored, Hashes: []kv.EngineHash{kv.EngineHash(1<<63 + seq)},
			Tokens: []kv.Token{kv.Token(seq), 1000, 100_000, 5}, BlockSize: 4, Salt: "salt",
		},
	}
	if form == "map" {
		want[1].SpecKind = "full_attention"
	}
	diffBatch(t, "last batch", &k.last, &kv.Batch{At: k.last.At, Events: want})
	if age := time.Since(k.last.At); age < 0 || age > time.Minute {
		t.Errorf("got a last batch that is %v old, want at most a minute", age)
	}
}

// In TestPublishPython, a Python script subscribes to the publisher of this package and asks for replays.
func TestPublishPython(t *testing.T) {
	for _, tt := range []struct {
		form   Form
		frames int
	}{{Map, 4}, {Array, 3}} {
		t.Run(fmt.Sprintf("%d frames", tt.frames), func(t *testing.T) {
			e := newEngine(t, PublisherOptions{Form: tt.form, ReplayFrames: tt.frames, Topic: "kv@a@b"})
			endpoint, replay := e.Endpoints()
			py := start(t, "testdata/subscriber.py", endpoint, replay)
			e.publish(3)
			py.tell("1")
			const (
				topic = "6b7640614062"
				one   = "0000000000000001"
				two   = "0000000000000002"
				end   = "ffffffffffffffff"
			)
			heads := [][]string{{"", topic, one}, {"", topic, two}, {"", "", end}}
			if tt.frames == 3 {
				heads = [][]string{{"", one}, {"", two}, {"", end}}
			}
			for i, want := range heads {
				got := nextMessage(py, "replay")
				if got.err != nil || !equalStrings(got.head, want) || (got.payload == nil) != (i == 2) {
					t.Errorf("replay %d: got frames %q, payload %v, %v; want %q", i, got.head, got.payload, got.err, want)
				}
			}
			live := firstLive(t, e, py)
			if live.err != nil || len(live.head) != 2 || live.head[0] != topic || len(live.head[1]) != 16 {
				t.Fatalf("got live frames %q, %v; want the topic and 8 bytes", live.head, live.err)
			}
			checkStored(t, live.payload, tt.form)
		})
	}
}

type shown struct {
	channel string
	head    []string
	payload any
	err     error
}

func nextMessage(py *script, channel string) shown {
	for {
		var s shown
		s.err = py.read(&[]any{&s.channel, &s.head, &s.payload})
		if s.channel == channel || s.err != nil {
			return s
		}
	}
}

// firstLive publishes batches until one arrives. No signal shows when a subscription takes effect.
func firstLive(t *testing.T, e *engine, py *script) shown {
	t.Helper()
	got := make(chan shown, 1)
	go func() { got <- nextMessage(py, "live") }()
	for {
		e.publish(1)
		select {
		case s := <-got:
			return s
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func checkStored(t *testing.T, payload any, form Form) {
	t.Helper()
	event := payload.([]any)[1].([]any)[0]
	m, isMap := event.(map[string]any)
	if isMap != (form == Map) {
		t.Fatalf("got event %v, want form %d", event, form)
	}
	if !isMap {
		m = named(event.([]any))
	}
	if m["type"] != "BlockStored" || fmt.Sprint(m["token_ids"]) != "[1 2 3 4]" ||
		fmt.Sprint(m["block_size"]) != "4" || fmt.Sprint(m["extra_keys"]) != "[<nil>]" || m["medium"] != "GPU" {
		t.Errorf("got event %v, want a stored block of the tokens 1 to 4", event)
	}
}

func equalStrings(a, b []string) bool { return strings.Join(a, "|") == strings.Join(b, "|") }
