package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"

	"github.com/tandem-router/tandem/tools/pinned"
)

//go:embed hybrid.py
var hybridMaker []byte

//go:embed drafting.py
var draftingMaker []byte

// shape is a model that is not like the usual one, and how its engines guess what comes next.
type shape struct {
	maker   []byte
	guesses string
}

const (
	sliding  = "hybrid"
	drafting = "drafting"
)

const lookup = `"num_speculative_tokens":3,"prompt_lookup_max":4,"prompt_lookup_min":2`

// shapes are all shapes. One has layers that do not all see the whole prompt, and it guesses by what came
// before. The other has layers of its own that draft tokens ahead.
var shapes = map[string]shape{
	sliding:  {hybridMaker, `{"method":"ngram",` + lookup + `}`},
	drafting: {draftingMaker, `{"method":"mtp","num_speculative_tokens":3}`},
}

// shaped is where the model with this shape is.
func (e environment) shaped(name string) string {
	return filepath.Join(pinned.Folder(e.root, "e2e-"+name, shapes[name].maker, modelMaker), "model")
}

// form makes the models of other shapes that engines are of.
func form(ctx context.Context, env environment, engines []*engine) error {
	for _, e := range engines {
		if e.Shape == "" {
			continue
		}
		dir := filepath.Dir(env.shaped(e.Shape))
		err := pinned.Once(ctx, say, dir, e.Shape, func(ctx context.Context) error {
			return makeShaped(ctx, env, e.Shape)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func makeShaped(ctx context.Context, e environment, name string) error {
	model := e.shaped(name)
	maker := filepath.Join(filepath.Dir(model), name+".py")
	errOld, errNew := os.RemoveAll(model), os.MkdirAll(model, 0o755)
	err := errors.Join(errOld, errNew, os.WriteFile(maker, shapes[name].maker, 0o644))
	if err != nil {
		return err
	}
	return pinned.Run(ctx, []string{"HF_HUB_OFFLINE=1"}, e.python(), maker, e.model(), model)
}
