package cluster

import (
	"math"
	"testing"
	"time"
)

// Classes have about the same number of sessions, tenants have their shares, and both are drawn apart: a
// tenant is in each class as often as others.
func TestMix(t *testing.T) {
	m := &Mix{
		Classes: []Class{{Name: "a", TTFT: time.Second}, {Name: "b", TTFT: time.Minute}},
		Tenants: []float64{0.6, 0.3, 0.1},
	}
	const n = 30_000
	var classes [2]float64
	var tenants, inA [3]float64
	for session := range n {
		c, tenant := m.Class(session), m.Tenant(session)
		if m.Class(session) != c || m.Tenant(session) != tenant {
			t.Fatal("a session has two classes or tenants")
		}
		tenants[tenant]++
		if c == &m.Classes[0] {
			classes[0]++
			inA[tenant]++
		} else {
			classes[1]++
		}
	}
	if math.Abs(classes[0]/n-0.5) > 0.01 {
		t.Errorf("%v sessions by class", classes)
	}
	for i, share := range m.Tenants {
		if math.Abs(tenants[i]/n-share) > 0.01 || math.Abs(inA[i]/tenants[i]-0.5) > 0.03 {
			t.Errorf("tenant %d has %v of %d sessions, %v in class a", i, tenants[i], n, inA[i])
		}
	}
	var none *Mix
	if none.Class(1) != nil || none.Tenant(1) != 0 {
		t.Error("no mix gives a class or a tenant")
	}
}
