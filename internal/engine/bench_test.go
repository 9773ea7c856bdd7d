package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// answerer is a minimal HTTP server: it answers every complete request with the same bytes.
func answerer(tb testing.TB, answer string) (url string) {
	out := []byte(answer)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				r := bufio.NewReaderSize(nc, 64<<10)
				for readRequest(r) == nil {
					nc.Write(out)
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

func readRequest(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length = number(bytes.TrimSpace(v))
		}
		if len(line) == 2 {
			_, err := r.Discard(length)
			return err
		}
	}
}

// named begins like an answer of vLLM and has 600 bytes.
var named = fmt.Sprintf("%-600s", `{"id":"cmpl-`+name+`","object":"text_completion"`)

var smallAnswer = "HTTP/1.1 200 OK\r\ndate: Fri, 21 Nov 2026 09:00:00 GMT\r\nserver: uvicorn\r\n" +
	"content-type: application/json\r\ncontent-length: 600\r\n\r\n" + named

func BenchmarkDo(b *testing.B) {
	body := []byte(strings.Repeat("12345,", 300))
	url := answerer(b, smallAnswer)
	b.Run("engine", func(b *testing.B) {
		c, _ := New(Options{URL: url})
		defer c.Close()
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		req := &Request{
			Method: "POST", Path: "/v1/completions", ID: name, Body: body,
		}
		b.ReportAllocs()
		for b.Loop() {
			resp, err := c.Do(ctx, req)
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = resp.Next()
			}
			resp.Close()
		}
	})
	b.Run("net_http", func(b *testing.B) {
		tr := &http.Transport{DisableCompression: true}
		defer tr.CloseIdleConnections()
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
			req.Header.Set("X-Request-Id", "abc")
			req.Header.Set("Content-Type", "application/json")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// BenchmarkStream reads a chunked stream of 64 events that the server writes at once.
func BenchmarkStream(b *testing.B) {
	event := "data: " + named[:180] + "\n\n"
	url := answerer(b, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+
		strings.Repeat("bc\r\n"+event[:188]+"\r\n", 64)+"0\r\n\r\n")
	c, _ := New(Options{URL: url})
	defer c.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		resp, err := c.Do(ctx, post)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for err == nil {
			var piece []byte
			piece, err = resp.Next()
			n += len(piece)
		}
		if resp.Close(); err != io.EOF || n != 64*188 {
			b.Fatalf("got %d bytes and %v, want %d bytes and EOF", n, err, 64*188)
		}
	}
}
