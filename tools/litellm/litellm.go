// Package litellm installs LiteLLM's proxy, a gateway with an answer cache in Redis, and returns its command
// line, so that Tandem's answer cache can be compared with it (docs/answer-cache.md).
package litellm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-router/tandem/tools/pinned"
)

// Version is the version in pins.txt.
const Version = "1.106.2"

//go:embed pins.txt
var pins []byte

// Proxy is an installed proxy.
type Proxy struct {
	dir string // folder of the virtual environment
}

func (p Proxy) python() string { return filepath.Join(p.dir, "venv", "bin", "python") }

// Install makes a virtual environment of Python 3.11 with exactly the pinned packages in its own folder below
// root, 640 MB. If an earlier call has completed it, Install uses it. Only one process installs at a time.
func Install(ctx context.Context, root string, say pinned.Say) (Proxy, error) {
	p := Proxy{dir: pinned.Folder(root, "litellm", pins)}
	return p, pinned.Once(ctx, say, p.dir, "litellm "+Version, p.install)
}

func (p Proxy) install(ctx context.Context) error {
	python, err := pinned.Python(ctx)
	if err != nil {
		return err
	}
	venv, file := filepath.Join(p.dir, "venv"), filepath.Join(p.dir, "pins.txt")
	if err := errors.Join(os.RemoveAll(venv), os.WriteFile(file, pins, 0o644)); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, python, "-m", "venv", venv); err != nil {
		return err
	}
	if err := pinned.Run(ctx, nil, p.python(), "-m", "pip", "install", "-q", "--disable-pip-version-check",
		"--no-deps", "-r", file); err != nil {
		return err
	}
	return pinned.Run(ctx, nil, p.python(), "-c", "import importlib.metadata, litellm.proxy.proxy_cli; assert "+
		"importlib.metadata.version('litellm') == '"+Version+"'")
}

// Config is a configuration that spreads requests for a model over engines, and keeps answers in the Redis
// server at store. It has LiteLLM's defaults, but without retries and without telemetry.
func Config(model, store string, engines []string) (string, error) {
	host, port, err := net.SplitHostPort(store)
	var b strings.Builder
	b.WriteString("model_list:\n")
	for _, url := range engines {
		fmt.Fprintf(&b, "  - model_name: %q\n    litellm_params: {model: %q, api_base: %q, api_key: none}\n", model,
			"openai/"+model, url+"/v1")
	}
	fmt.Fprintf(&b, "litellm_settings:\n  cache: true\n  cache_params: {type: redis, host: %q, port: %s}\n"+
		"  num_retries: 0\n  telemetry: false\n", host, port)
	return b.String(), err
}

// Command is the command line that serves a configuration: one process, no keys, no access log.
func (p Proxy) Command(listen, config string) (program string, args []string, err error) {
	host, port, err := net.SplitHostPort(listen)
	return "env", []string{
		"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true", "LITELLM_LOCAL_MODEL_COST_MAP=True",
		"LITELLM_LOG=ERROR", p.python(), filepath.Join(filepath.Dir(p.python()), "litellm"), "--config", config,
		"--host", host, "--port", port,
	}, err
}
