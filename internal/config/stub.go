package config

import (
	"context"
	"errors"
)

func Load(path string) (*Config, error)               { return nil, errors.New("not yet") }
func Parse(name string, data []byte) (*Config, error) { return nil, errors.New("not yet") }

func (c *Config) Validate() error { return nil }

type Change struct{ Field, Old, New, Effect string }

func Diff(a, b *Config) []Change { return nil }

type Watcher struct{}

func NewWatcher(path string, changed func(*Config, error)) *Watcher { return &Watcher{} }
func (w *Watcher) Run(ctx context.Context) error                    { <-ctx.Done(); return nil }
