package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// mute is a publisher that shakes hands as libzmq does and never says a word after it.
func mute(t *testing.T, kind string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-gone
	})
	go func() {
		defer close(gone)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			p := &peer{nc: nc}
			_, _ = nc.Write(greeting())
			_ = p.write(flagCommand, ready(kind))
			_, _ = io.Copy(io.Discard, nc) // until the other side leaves
			nc.Close()
		}
	}()
	return "tcp://" + ln.Addr().String()
}

// A publisher that does not answer pings is told from one that does.
func TestHeartbeatMissing(t *testing.T) {
	r := &rank{s: &server{fleet: &fleet{}}}
	for _, c := range []struct {
		at   string
		want Status
	}{{mute(t, "PUB"), Warning}, {publisher(t), OK}} {
		r.link = openLink(t.Context(), c.at, "")
		r.link.ping(t.Context())
		r.link.close()
		if v := heartbeats(r); v.status != c.want {
			t.Errorf("%+v", v)
		}
	}
}

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

// Each way that a connection can fail is told from the others, in time.
func TestDialPeer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, c := range []struct {
		name, at string
		want     layer
		says     string
	}{
		{"publisher", publisher(t), 0, ""},
		{"another kind", mute(t, "ROUTER"), atSocket, "a ROUTER socket is there, not PUB"},
		{"nobody", "tcp://127.0.0.1:" + closed, atTCP, "refused"},
		{"silence", "tcp://" + silent.Addr().String(), atZMTP, "no ZeroMQ greeting"},
		{"no port", "tcp://127.0.0.1", atAddress, "missing port"},
		{"no tcp", "ipc:///tmp/x", atAddress, "no tcp:// address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := dialPeer(t.Context(), c.at, "SUB", "PUB", 300*time.Millisecond)
			if err == nil {
				p.close()
			}
			if (err == nil) != (c.want == 0) ||
				err != nil && (err.layer != c.want || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// scripted is a ROUTER that answers the first request with these messages.
func scripted(t *testing.T, messages ...[][]byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-gone
	})
	go func() {
		defer close(gone)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		p := &peer{nc: nc, r: bufio.NewReader(nc)}
		if p.shake("ROUTER") != nil {
			return
		}
		if _, err := p.message(); err != nil {
			return
		}
		for _, m := range messages {
			_ = p.send(m...)
		}
		_, _ = io.Copy(io.Discard, nc) // until the other side leaves
	}()
	return "tcp://" + ln.Addr().String()
}

// Replays of both forms are read; one that stops, has holes or another form is told from a whole one.
func TestAskReplay(t *testing.T) {
	batch := kvevents.Encode(nil, &kvevents.EncodeBatch{At: time.Unix(1, 0), Events: []kv.Event{{
		Kind: kv.Stored, Hashes: []kv.EngineHash{1, 2}, Tokens: []kv.Token{1, 2, 3, 4, 5, 6, 7, 8}, BlockSize: 4,
	}}}, kvevents.Map)
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	end := [][]byte{nil, endMarker, nil}
	for _, c := range []struct {
		name     string
		messages [][][]byte
		want     Status
		topics   int
		first    uint64
	}{
		{"nothing to replay", [][][]byte{end}, OK, 0, 0},
		{"three frames", [][][]byte{{nil, seq(0), batch}, {nil, seq(1), batch}, end}, OK, 0, 0},
		{"four frames", [][][]byte{
			{nil, []byte("kv"), seq(7), batch}, {nil, []byte("kv"), seq(8), batch}, {nil, nil, endMarker, nil},
		}, OK, 1, 7},
		{"a hole", [][][]byte{{nil, seq(0), batch}, {nil, seq(3), batch}, end}, Warning, 0, 0},
		{"no end", [][][]byte{{nil, seq(0), batch}}, Failed, 0, 0},
		{"another form", [][][]byte{{seq(0), batch}}, Failed, 0, 0},
		{"silence", nil, Failed, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			r := &rank{s: &server{}, replay: askReplay(ctx, scripted(t, c.messages...))}
			v := replayAnswers(r)
			if v.status != c.want || len(r.replay.heard.topics) != c.topics || r.replay.first != c.first {
				t.Errorf("%+v %+v", v, r.replay)
			}
			if n := r.replay.heard; n.batches > 0 &&
				(len(n.sizes) != 1 || n.sizes[0] != 4 || n.stored != 2*n.batches) {
				t.Errorf("%+v", n)
			}
		})
	}
}

// A connection ends with its context, whatever it is waiting for.
func TestPeerEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, lerr := dialPeer(ctx, mute(t, "PUB"), "SUB", "PUB", time.Second)
	if lerr != nil {
		t.Fatal(lerr)
	}
	defer p.close()
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := p.message(); err == nil {
		t.Error("a message from a mute publisher")
	}
}

// What is written as frames is read as the same message, commands between them notwithstanding.
func TestMessagesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 600), 1, 8).Draw(t, "frames")
		var wire bytes.Buffer
		out := &peer{nc: writer{w: &wire}}
		if rapid.Bool().Draw(t, "pong first") {
			_ = out.write(flagCommand, []byte("\x04PONG"))
		}
		if err := out.send(frames...); err != nil {
			t.Fatal(err)
		}
		in := newReader(wire.Bytes())
		got, err := in.message()
		if err != nil || len(got) != len(frames) {
			t.Fatalf("%d frames, %v", len(got), err)
		}
		for i := range got {
			if !bytes.Equal(got[i], frames[i]) {
				t.Fatalf("frame %d: %q, want %q", i, got[i], frames[i])
			}
		}
	})
}

// writer is a connection that can only be written to.
type writer struct {
	net.Conn
	w io.Writer
}

func (w writer) Write(b []byte) (int, error) { return w.w.Write(b) }

func FuzzPeer(f *testing.F) {
	hello := func(kind string) []byte {
		return append(append(greeting(), flagCommand, byte(len(ready(kind)))), ready(kind)...)
	}
	f.Add(hello("PUB"))
	f.Add(append(hello("XPUB"), 1, 1, 't', 0, 2, 'a', 'b'))
	f.Add(append(hello("PUB"), binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<40)...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newReader(data)
		p.nc = writer{w: io.Discard}
		if p.shake("SUB") != nil {
			return
		}
		for {
			frames, err := p.message()
			if err != nil {
				return
			}
			total := 0
			for _, f := range frames {
				total += len(f)
			}
			if total > len(data) || len(frames) > 9 {
				t.Fatalf("%d frames of %d bytes from %d", len(frames), total, len(data))
			}
		}
	})
}

func FuzzLabels(f *testing.F) {
	f.Add([]byte(`vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="1"} 1.0` + "\n"))
	f.Add([]byte(`vllm:cache_config_info{`))
	f.Fuzz(func(_ *testing.T, body []byte) { cachingLabels(body) })
}

func TestCachingLabels(t *testing.T) {
	got := cachingLabels([]byte("vllm:x{enable_prefix_caching=\"True\"} 1\n" +
		`vllm:cache_config_info{enable_prefix_caching="True"} 1.0` + "\n" +
		`vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="1"} 1.0` + "\n"))
	if len(got) != 2 || got[0] != "True" || got[1] != "False" {
		t.Errorf("%v", got)
	}
}

func newReader(data []byte) *peer {
	return &peer{r: bufio.NewReader(bytes.NewReader(data)), pongs: make(chan struct{}, 1)}
}
