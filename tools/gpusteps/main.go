// Command gpusteps compares the step formula of simulated engines with steps that steps.py timed on a GPU.
//
//	python3 tools/gpusteps/steps.py --attention _vllm_fa3_C.abi3.so --out steps.jsonl    # on the GPU
//	go run ./tools/gpusteps steps.jsonl
//
// For each model it fits the formula to steps with prompts alone and with streams alone. Then it prints the
// ratio of the timed to the predicted steps with a prompt and streams together, to which nothing was fitted.
// testdata has timed steps.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gpusteps:", err)
		os.Exit(1)
	}
}

// run prints a report of each file.
func run(files []string, w io.Writer) error {
	if len(files) == 0 || strings.HasPrefix(files[0], "-") {
		return fmt.Errorf("name files of steps.py, for example tools/gpusteps/testdata/h100.jsonl.gz")
	}
	for _, name := range files {
		steps, err := readFile(name)
		if err != nil {
			return err
		}
		for _, of := range byModel(steps) {
			if err := report(w, of); err != nil {
				return err
			}
		}
	}
	return nil
}
