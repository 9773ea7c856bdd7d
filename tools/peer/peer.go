// Package peer installs vllm-router, another front for pools of vLLM servers, and says how it is started, so
// that Tandem can be measured and tried beside it (docs/benchmarks.md, docs/results.md).
package peer

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/tandem-router/tandem/tools/pinned"
)

// Version is the one that pins.txt names.
const Version = "0.1.17"

//go:embed pins.txt
var pins []byte

// Router is an installed vllm-router.
type Router struct {
	dir string // of the virtual environment and what belongs to it
}

func (r Router) python() string { return filepath.Join(r.dir, "venv", "bin", "python") }

// Install makes a virtual environment of Python 3.11 with exactly the pinned packages in a folder of its own
// under root, or uses the one that an earlier call has completed there. One process does it at a time.
func Install(ctx context.Context, root string, say pinned.Say) (Router, error) {
	r := Router{dir: pinned.Folder(root, "peer", pins)}
	return r, pinned.Once(ctx, say, r.dir, "vllm-router "+Version, r.install)
}

func (r Router) install(ctx context.Context) error {
	python, err := pinned.Python(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(r.dir, "venv"), filepath.Join(r.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, pins, 0o644)); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, r.python(), "-m", "pip", "install", "-q", "--disable-pip-version-check",
		"--no-deps", "-r", file); err != nil {
		return err
	}
	return pinned.Run(ctx, nil, r.python(), "-c", "import importlib.metadata, vllm_router.router; assert "+
		"importlib.metadata.version('vllm-router') == '"+Version+"'")
}

// Command is the program and its arguments that put the router before these engines, in its fastest form:
// replicas in turn, nothing logged. listen and metrics are addresses, prefill and decode URLs. more comes
// last and so overrides.
func (r Router) Command(
	listen, metrics string, prefill, decode []string, more ...string,
) (program string, args []string, err error) {
	host, port, err1 := net.SplitHostPort(listen)
	metricsHost, metricsPort, err2 := net.SplitHostPort(metrics)
	args = []string{
		"-m", "vllm_router.launch_router", "--host", host, "--port", port, "--prometheus-host", metricsHost,
		"--prometheus-port", metricsPort,
		// "critical" is taken for "info" by this version.
		"--log-level", "error", "--vllm-pd-disaggregation", "--prefill-policy", "round_robin", "--decode-policy",
		"round_robin",
	}
	for _, url := range prefill {
		args = append(args, "--prefill", url)
	}
	for _, url := range decode {
		args = append(args, "--decode", url)
	}
	return r.python(), append(args, more...), errors.Join(err1, err2)
}
