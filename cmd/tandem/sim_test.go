package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The subcommand prints its addresses, serves, and ends with its context.
func TestSim(t *testing.T) {
	defer goleak.VerifyNone(t)
	defer http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{
			"sim", "--zero-latency", "--role", "prefill", "--events", "tcp://127.0.0.1:0", "--control", "127.0.0.1:0",
			"--fault", "fail,status=503",
		}, in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if !strings.HasPrefix(url, "http://127.0.0.1:") ||
		!strings.Contains(rest, "role=prefill events=tcp://127.0.0.1:") ||
		!strings.Contains(rest, "control=http://") {
		t.Errorf("ready line %q", line)
	}
	for _, want := range []int{503, 200} {
		resp, err := http.Post(url+"/v1/completions", "application/json",
			strings.NewReader(`{"prompt":[300,301],"max_tokens":2}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

func TestSimRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, args := range [][]string{
		{"--speed", "warp"}, {"--fault", "fail,colour=red"}, {"--version", "new"}, {"--listen", "nowhere:x"},
	} {
		if code := run(t.Context(), append([]string{"sim"}, args...), io.Discard, io.Discard); code == 0 {
			t.Errorf("%v passed", args)
		}
	}
}

// A block size of 0 is refused. It would divide by zero.
func TestSimRefusesBlocksWithoutTokens(t *testing.T) {
	var said strings.Builder
	if code := run(t.Context(), []string{"sim", "--block-size", "0"}, io.Discard, &said); code != 2 ||
		!strings.Contains(said.String(), "--block-size is 0: choose a number above 0") {
		t.Errorf("exit code %d, said %q", code, said.String())
	}
}
