package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// conn is one raw connection of the load. It writes each request at once and reads into one buffer. It parses
// only as much as it needs to find the end of the answer.
type conn struct {
	nc  net.Conn
	buf []byte
}

func dial(addr string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, buf: make([]byte, 256<<10)}, nil
}

func (c *conn) close() { c.nc.Close() }

var (
	blankLine = []byte("\r\n\r\n")
	lastChunk = []byte("\r\n0\r\n\r\n")
)

// do sends a request and returns the body of its answer, with the chunk framing. It is valid until the next
// call.
func (c *conn) do(request []byte) ([]byte, error) {
	if _, err := c.nc.Write(request); err != nil {
		return nil, err
	}
	n := 0
	head := 0
	want := 0
	for {
		m, err := c.nc.Read(c.buf[n:])
		if err != nil {
			return nil, fmt.Errorf("answer of %d bytes: %w", n, err)
		}
		n += m
		if head == 0 {
			if head, want, err = readHead(c.buf[:n]); err != nil {
				return nil, err
			}
		}
		switch body := c.buf[head:n]; {
		case head == 0:
		case want >= 0 && len(body) >= want, want < 0 && bytes.HasSuffix(body, lastChunk):
			return body, nil
		}
		if n == len(c.buf) {
			return nil, errors.New("answer is too long")
		}
	}
}

// readHead returns the length of the head, or 0 if the head is incomplete, and the length of the body, or -1
// if the body is chunked.
func readHead(b []byte) (head, body int, err error) {
	end := bytes.Index(b, blankLine)
	if end < 0 {
		return 0, 0, nil
	}
	if !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
		return 0, 0, fmt.Errorf("answered %q", b[:min(len(b), 400)])
	}
	for line := range bytes.SplitSeq(b[:end], []byte("\r\n")) {
		key, value, _ := bytes.Cut(line, []byte(": "))
		if len(key) == len("Content-Length") && bytes.EqualFold(key, []byte("content-length")) {
			body, err = strconv.Atoi(string(value))
			return end + len(blankLine), body, err
		}
	}
	return end + len(blankLine), -1, nil
}

const promptTokens = 300

// ids is the JSON text of a prompt of token ids. Each seed gives another prompt.
func ids(seed int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	b := []byte{'['}
	for i := range promptTokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(10+r.IntN(1000)), 10)
	}
	return append(b, ']')
}

// model is the name of the engines' model. It is set before any load runs.
var model = "tandem-sim"

// completionBody is a client's request. max_tokens follows the prompt, so that prefillLeg and decodeLeg can
// cut the body there.
func completionBody(seed, maxTokens int, stream bool) []byte {
	b := fmt.Appendf(nil,
		`{"model":%q,"prompt":%s,"temperature":0,"ignore_eos":true,"stream":%v,"max_tokens":%d}`, model, ids(seed),
		stream, maxTokens)
	return b
}

func completion(host string, seed, maxTokens int, stream bool) []byte {
	return request(host, completionBody(seed, maxTokens, stream))
}

func request(host string, body []byte) []byte {
	b := fmt.Appendf(nil,
		"POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		host, len(body))
	return append(b, body...)
}

// result is the result of one load.
type result struct {
	answers int
	took    time.Duration
	latency []time.Duration // sorted
}

func (r *result) rate() float64 { return float64(r.answers) / r.took.Seconds() }

func (r *result) p50() time.Duration { return r.latency[len(r.latency)/2] }

// asker does one exchange. n counts the exchanges.
type asker func(n int) error

// drive runs each asker in a closed loop for d. Exchanges that run at the end are finished and count, and so
// does their time.
func drive(ctx context.Context, d time.Duration, askers []asker) (*result, error) {
	latencies, errs := make([][]time.Duration, len(askers)), make([]error, len(askers))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, ask := range askers {
		wg.Go(func() {
			for n, now := 0, begin; errs[i] == nil && now.Sub(begin) < d && ctx.Err() == nil; n++ {
				errs[i] = ask(n)
				then := time.Now()
				latencies[i] = append(latencies[i], then.Sub(now))
				now = then
			}
		})
	}
	wg.Wait()
	r := &result{took: time.Since(begin), latency: slices.Concat(latencies...)}
	slices.Sort(r.latency)
	r.answers = len(r.latency)
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return nil, fmt.Errorf("%d of %d connections failed, one of them: %w", len(failed), len(askers), failed[0])
	}
	if r.answers == 0 {
		return nil, errors.Join(ctx.Err(), errors.New("no answer"))
	}
	return r, nil
}

// promptsEach is the number of prompts that a connection sends in turn.
const promptsEach = 16

// frontAskers are n connections to addr.
func frontAskers(addr string, n, maxTokens int, stream bool) (askers []asker, closeAll func(), err error) {
	var conns []*conn
	closeAll = func() {
		for _, c := range conns {
			c.close()
		}
	}
	for i := range n {
		c, err := dial(addr)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, c)
		requests := make([][]byte, promptsEach)
		for j := range requests {
			requests[j] = completion(addr, i*promptsEach+j, maxTokens, stream)
		}
		askers = append(askers,
			func(n int) error { return askFront(c, requests[n%promptsEach], maxTokens, stream) })
	}
	return askers, closeAll, nil
}

func askFront(c *conn, request []byte, maxTokens int, stream bool) error {
	body, err := c.do(request)
	if err != nil || !stream {
		return err
	}
	// A chunk may end within the word, so a few events may not be counted.
	if n := bytes.Count(body, []byte("data: ")); n < maxTokens*9/10 {
		return fmt.Errorf("stream has %d events of %d: %q", n, maxTokens, body[:min(len(body), 400)])
	}
	return nil
}
