// Command conformance asks an engine, real or simulated, what a real vLLM 0.32.0 was asked, and lists where it answers otherwise.
//
//	go run ./tools/conformance -url http://127.0.0.1:8000 -model tiny
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"tandem/internal/enginesim/conformance"
)

func main() {
	var t conformance.Target
	flag.StringVar(&t.URL, "url", "", "base URL of the engine (needs --enable-scale-out --enable-request-id-headers --max-model-len 4096, a vocabulary of 2048)")
	flag.StringVar(&t.Model, "model", "tiny", "served model name")
	folder := flag.String("captures", "internal/enginesim/testdata", "folder of the captures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	all, err := conformance.Read(*folder)
	if err != nil || t.URL == "" {
		fmt.Fprintln(os.Stderr, "conformance: -url is wanted, and the captures:", err)
		os.Exit(2)
	}
	r := conformance.Run(ctx, t, all)
	for _, d := range r.Differences {
		fmt.Println(d)
		fmt.Println()
	}
	fmt.Printf("%d asked, %d differences, %d skipped (a second engine, or an end)\n", r.Asked, len(r.Differences), len(r.Skipped))
	if len(r.Differences) > 0 {
		os.Exit(1)
	}
}
