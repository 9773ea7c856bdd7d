package planner

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// set puts p in force. Missing fields get the values of this package's tests. Ties below zero mean no ties.
func (f *fleet) set(p Policy) { f.pl.SetPolicy(complete(p)) }

func complete(p Policy) Policy {
	p.Weights = cmp.Or(p.Weights, usualWeights())
	p.Links = cmp.Or(p.Links, [replica.Links]float64{100e9, 40e9, 40e9, 3e9})
	p.Setup = cmp.Or(p.Setup, 2*time.Millisecond)
	p.KVBytesPerToken = cmp.Or(p.KVBytesPerToken, 128<<10)
	p.HeadroomMargin = cmp.Or(p.HeadroomMargin, 0.02)
	p.ExpectedOutput = cmp.Or(p.ExpectedOutput, 256)
	p.TieAbsolute = max(cmp.Or(p.TieAbsolute, 2*time.Millisecond), 0)
	p.TieRelative = max(cmp.Or(p.TieRelative, 0.02), 0)
	p.PrefillLoadTTL = cmp.Or(p.PrefillLoadTTL, 10*time.Second)
	p.DecodeLoadTTL = cmp.Or(p.DecodeLoadTTL, 10*time.Second)
	return p
}

func usualWeights() scoring.Weights {
	return scoring.Weights{
		Alpha: scoring.Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
	}
}

// The planner refuses a policy without the numbers that every prediction needs. It has no defaults of its
// own.
func TestPolicyIsSaidInFull(t *testing.T) {
	for name, forget := range map[string]func(p *Policy){
		"Links":           func(p *Policy) { p.Links[replica.SameRack] = 0 },
		"KVBytesPerToken": func(p *Policy) { p.KVBytesPerToken = 0 },
		"ExpectedOutput":  func(p *Policy) { p.ExpectedOutput = 0 },
		"LoadTTL":         func(p *Policy) { p.DecodeLoadTTL = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			f, p := newFleet(1, 1, nil), complete(Policy{})
			forget(&p)
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, name) {
					t.Errorf("said %q", said)
				}
			}()
			f.pl.SetPolicy(p)
		})
	}
}
