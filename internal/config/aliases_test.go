package config

import (
	"slices"
	"testing"
)

// A model behind an alias has the weight 1 by default, written as an object or as plain text.
func TestAModelBehindAnAliasWeighsOne(t *testing.T) {
	c, err := Parse("test.yaml", []byte(`
aliases: [{name: a, to: [{model: m}, n, {model: o, weight: 0}, {model: p, weight: 3}]}]
pools: {decode: {replicas: ["http://d0:8000"]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Target{{"m", 1}, {"n", 1}, {"o", 0}, {"p", 3}}
	if got := c.Aliases[0].To; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
