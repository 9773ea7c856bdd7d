// Package peer installs vllm-router, another router for pools of vLLM servers, and returns its command line,
// so that Tandem can be compared with it (docs/benchmarks.md, docs/results.md).
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

// Version is the version in pins.txt.
const Version = "0.1.17"

//go:embed pins.txt
var pins []byte

// Router is an installed vllm-router.
type Router struct {
	dir string // folder of the virtual environment
}

func (r Router) python() string { return filepath.Join(r.dir, "venv", "bin", "python") }

// Install makes a virtual environment of Python 3.11 with exactly the pinned packages in its own folder below
// root. If an earlier call has completed it, Install uses it. Only one process installs at a time.
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

// Command is the command line of the router for these engines, in its fastest form: replicas in turn, no log.
// listen and metrics are addresses, prefill and decode are URLs. more comes last, so it overrides other
// arguments.
func (r Router) Command(
	listen, metrics string, prefill, decode []string, more ...string,
) (program string, args []string, err error) {
	host, port, err1 := net.SplitHostPort(listen)
	metricsHost, metricsPort, err2 := net.SplitHostPort(metrics)
	args = []string{
		"-m", "vllm_router.launch_router", "--host", host, "--port", port, "--prometheus-host", metricsHost,
		"--prometheus-port", metricsPort,
		// This version treats "critical" as "info".
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
