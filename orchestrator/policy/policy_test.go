package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/scoring"
)

// Whatever number of the file concerns decisions arrives: another one makes another policy.
func TestEveryNumberArrives(t *testing.T) {
	was := Default()
	for name, section := range map[string]func(c *config.Config) any{
		"scoring":               func(c *config.Config) any { return &c.Scoring },
		"experimental.scoring":  func(c *config.Config) any { return &c.Experimental.Scoring },
		"health.ejection":       func(c *config.Config) any { return &c.Health.Ejection },
		"prefill.poll_interval": func(c *config.Config) any { return &c.Pools.Prefill.PollInterval },
		"decode.poll_interval":  func(c *config.Config) any { return &c.Pools.Decode.PollInterval },
	} {
		tried := 0
		for i := range numbers(reflect.ValueOf(section(config.Default())).Elem(), nil) {
			c := config.Default()
			v := numbers(reflect.ValueOf(section(c)).Elem(), nil)[i]
			if v.CanInt() {
				v.SetInt(2*v.Int() + 1)
			} else {
				v.SetFloat(v.Float()/2 + 0.013)
			}
			if name == "scoring" {
				c.Scoring.Alpha.Auto = false
			}
			tried++
			if got := Of(c); reflect.DeepEqual(got, was) {
				t.Errorf("number %d of %s, now %v, changes nothing", i, name, v)
			}
		}
		if tried == 0 {
			t.Errorf("%s has no number", name)
		}
	}
}

// numbers appends the numbers in v, in order.
func numbers(v reflect.Value, all []reflect.Value) []reflect.Value {
	switch {
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			all = numbers(field, all)
		}
	case v.CanInt(), v.CanFloat():
		all = append(all, v)
	}
	return all
}

// The weights of the file are those of the decision.
func TestWeightsArriveUnchanged(t *testing.T) {
	c := config.Default()
	c.Scoring.Alpha = config.Alpha{Value: 2}
	c.Scoring.Beta, c.Scoring.Gamma = 3, 5
	c.Scoring.DecodePenalty = 7
	want := scoring.Weights{Alpha: scoring.Alpha{Value: 2}, Beta: 3, Gamma: 5, DecodePenalty: 7}
	if got := Of(c).Weights; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A zero that an operator writes is a zero: no room below puts a number of its own in its place.
func TestZeroIsZero(t *testing.T) {
	c := config.Default()
	c.Scoring.Alpha = config.Alpha{}
	c.Scoring.Beta = 0
	c.Scoring.Gamma = 0
	c.Scoring.DecodePenalty = 0
	c.Scoring.HeadroomMargin = 0
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if p := Of(c); p.Weights != (scoring.Weights{}) || p.HeadroomMargin != 0 {
		t.Errorf("got %+v", p)
	}
}

// Each pool's reports are believed for ten intervals of its own.
func TestReportsAgeByTheirPool(t *testing.T) {
	c := config.Default()
	c.Pools.Prefill.PollInterval = 30 * time.Second
	if p := Of(c); p.PrefillLoadTTL != 5*time.Minute || p.DecodeLoadTTL != 10*time.Second {
		t.Errorf("reports are believed for %v and %v", p.PrefillLoadTTL, p.DecodeLoadTTL)
	}
}
