package main

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tandem-router/tandem/tools/pinned"
)

//go:embed adapters.py
var adapterMaker []byte

// The adapters of the suite. Engines with adapters start with the first two. An act loads the third at run
// time.
const (
	adapterA    = "a"
	adapterB    = "b"
	adapterLate = "late"
)

// adapterRank is the rank of every adapter, as adapters.py makes them.
const adapterRank = 8

// equip makes the adapters if an engine needs adapters.
func equip(ctx context.Context, env environment, engines []*engine) error {
	for _, e := range engines {
		if len(e.Adapters) > 0 {
			return pinned.Once(ctx, say, env.adapters(), "adapters",
				func(ctx context.Context) error { return makeAdapters(ctx, env) })
		}
	}
	return nil
}

func (e environment) adapters() string { return pinned.Folder(e.root, "e2e-adapters", adapterMaker) }

// adapter is the folder of an adapter, which must exist.
func (e environment) adapter(name string) string { return filepath.Join(e.adapters(), name) }

func makeAdapters(ctx context.Context, e environment) error {
	maker := filepath.Join(e.adapters(), "adapters.py")
	if err := os.WriteFile(maker, adapterMaker, 0o644); err != nil {
		return err
	}
	return pinned.Run(ctx, nil, e.python(), maker, e.adapters(), adapterA, adapterB, adapterLate)
}

// adapterFlags let an engine have adapters: the named ones from its start, others at run time.
func (e *engine) adapterFlags() (flags, vars []string) {
	if len(e.Adapters) == 0 {
		return nil, nil
	}
	flags = []string{
		"--enable-lora", "--max-lora-rank", strconv.Itoa(adapterRank), "--max-loras",
		strconv.Itoa(len(e.Adapters) + 1), "--lora-modules",
	}
	for _, name := range e.Adapters {
		flags = append(flags, name+"="+e.env.adapter(name))
	}
	return flags, []string{"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"}
}
