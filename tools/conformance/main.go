// Command conformance sends recorded requests to an engine, real or simulated, and lists the differences
// between its answers and the recorded answers of a real vLLM 0.32.0.
//
//	go run ./tools/conformance -url http://127.0.0.1:8000 -model tiny
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/tandem-router/tandem/internal/lab/enginesim/conformance"
)

func main() {
	var t conformance.Target
	flag.StringVar(&t.URL, "url", "",
		"base URL of the engine (needs --enable-scale-out and a vocabulary of 2048)")
	flag.StringVar(&t.Model, "model", "tiny", "served model name")
	flag.StringVar(&t.Decode, "decode", "",
		"base URL of a second engine, which pulls from the first; without it decode requests are left out")
	flag.IntVar(&t.Context, "max-model-len", 4096, "of the engines")
	flag.BoolVar(&t.NoRequestIDs, "no-request-ids", false, "the engines run without --enable-request-id-headers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	all, err := conformance.Captures()
	if err == nil && t.URL == "" {
		err = errors.New("-url is wanted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	r := conformance.Run(ctx, t, all)
	for _, d := range r.Differences {
		fmt.Println(d)
		fmt.Println()
	}
	fmt.Printf("%d requests, %d differences, %d left out (they need a second engine, or stop the engine)\n",
		r.Asked, len(r.Differences), len(r.Skipped))
	if len(r.Differences) > 0 {
		os.Exit(1)
	}
}
