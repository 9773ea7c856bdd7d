package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"tandem/internal/replay"
)

// runReplay plays recorded traffic in virtual time, or checks the engines that this is done with.
func runReplay(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "validate" {
		return runValidate(ctx, args[1:], stdout, stderr)
	}
	fmt.Fprintln(stderr, "Usage: tandem replay validate [flags]")
	return errUsage
}

// defaultTraces is where the traces lie beside a checkout.
const defaultTraces = "../shared/traces"

func runValidate(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("replay validate", "[flags]", stderr)
	traces := fs.String("traces", defaultTraces, "`folder` of the traces; its vllm_ground_truth is read")
	predictions := fs.String("predictions", filepath.Join("build", "predictions.jsonl"), "`file` for the runs whose results were kept back")
	asJSON := fs.Bool("json", false, "print JSON")
	if err := parse(fs, args); err != nil {
		return err
	}
	folder := filepath.Join(*traces, "vllm_ground_truth")
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("no recorded runs: %w; -traces names the folder that holds vllm_ground_truth", err)
	}
	vs, err := replay.Validate(os.DirFS(folder), func(run string) { fmt.Fprintln(stderr, "simulating", run) })
	if err != nil {
		return err
	}
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(vs)
	} else {
		err = replay.Print(stdout, vs)
	}
	return errors.Join(err, writeFile(*predictions, func(w io.Writer) error { return replay.WritePredictions(w, vs) }), replay.Check(vs))
}

// writeFile makes a file and its folder.
func writeFile(name string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
