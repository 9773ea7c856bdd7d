package enginesim

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/rawjson"
)

// rawClient sends requests on one connection as cheaply as a client can, so that a benchmark measures
// mostly the server.
type rawClient struct {
	io.WriteCloser
	br  *bufio.Reader
	buf []byte
}

func newRawClient(tb testing.TB, s *Server) *rawClient {
	tb.Helper()
	c, err := dialServer(s)
	if err != nil {
		tb.Fatal(err)
	}
	return &rawClient{WriteCloser: c, br: bufio.NewReaderSize(c, 64<<10), buf: make([]byte, 1<<20)}
}

func rawRequest(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: sim\r\nX-Request-Id: r\r\n"+
		"endpoint-load-metrics-format: TEXT\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// ask sends a request and reads its answer, which has a Content-Length.
func (c *rawClient) ask(request []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	n := 0
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if v, ok := bytes.CutPrefix(line, []byte("content-length: ")); ok {
			n, _ = strconv.Atoi(strings.TrimSpace(string(v)))
		}
		if len(line) == 2 {
			break
		}
	}
	_, err := io.ReadFull(c.br, c.buf[:n])
	return c.buf[:n], err
}

func idBody(n, maxTokens int, more string) string {
	return `{"model":"sim","prompt":` + string(rawjson.AppendIDs(nil, prompt(7, n))) + `,"max_tokens":` +
		strconv.Itoa(maxTokens) + more + `}`
}

// A short completion of ids on a server without latency: connection, parsing, the core's steps and the
// answer.
func BenchmarkCompletion(b *testing.B) {
	for _, size := range []int{100, 2000} {
		b.Run(fmt.Sprint("ids=", size), func(b *testing.B) {
			s, err := Start(Options{ZeroLatency: true})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			request := rawRequest("/v1/completions",
				idBody(size, 1, `,"kv_transfer_params":{"do_remote_decode":false}`))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				c := newRawClient(b, s)
				defer c.Close()
				for pb.Next() {
					if _, err := c.ask(request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// The cost of parsing a body: two lengths of ids, and a chat of 8 KB.
func BenchmarkParse(b *testing.B) {
	voc := newVocabulary(4096)
	text := strings.Repeat(`plain words, \"quoted\" ones\n`, 240)
	for _, c := range []struct {
		name string
		at   endpoint
		body string
	}{
		{"ids=100", atCompletions, idBody(100, 1, `,"temperature":0.5,"kv_transfer_params":`+askPrefill)},
		{"ids=8000", atCompletions, idBody(8000, 1, "")},
		{"chat", atChat, `{"model":"sim","messages":[{"role":"user","content":"` + text + `"}],"max_tokens":8}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			k := &call{body: []byte(c.body)}
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			for b.Loop() {
				p := newParams(c.at)
				if bad := p.parse(voc, k); bad != nil {
					b.Fatal(bad.message)
				}
				p.release()
			}
		})
	}
}

// A streamed completion of 64 tokens on a server without latency. The figure is for the whole stream.
func BenchmarkStream(b *testing.B) {
	s, err := Start(Options{ZeroLatency: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	request := rawRequest("/v1/completions",
		idBody(100, 64, `,"stream":true,"stream_options":{"include_usage":true}`))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := newRawClient(b, s)
		defer c.Close()
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			for {
				line, err := c.br.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if string(line) == "0\r\n" {
					c.br.Discard(2)
					break
				}
			}
		}
	})
}

// Both legs of a split request of 512 ids with one token each, over real sockets and the transfer port.
func BenchmarkSplit(b *testing.B) {
	var servers [2]*Server
	for i := range servers {
		s, err := Start(Options{ZeroLatency: true, Core: core.Config{Blocks: 32768}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		servers[i] = s
	}
	leg1 := rawRequest("/v1/completions", idBody(512, 1, `,"kv_transfer_params":`+askPrefill))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p, d := newRawClient(b, servers[0]), newRawClient(b, servers[1])
		defer p.Close()
		defer d.Close()
		for pb.Next() {
			got, err := p.ask(leg1)
			if err != nil {
				b.Error(err)
				return
			}
			_, params, _ := bytes.Cut(got, []byte(`"kv_transfer_params":`))
			params, _, _ = bytes.Cut(params, []byte(`,"ec_transfer_params"`))
			if got, err = d.ask(
				rawRequest("/v1/completions", idBody(512, 1, `,"kv_transfer_params":`+string(params))),
			); err != nil || !bytes.Contains(got, []byte(`"finish_reason":"length"`)) {
				b.Errorf("%s %v", got, err)
				return
			}
		}
	})
}
