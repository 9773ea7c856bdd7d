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

// What is no class and no share is named.
func TestParseMix(t *testing.T) {
	classes, err := ParseClasses("fast=500ms/20ms,slow=10s/200ms")
	slow := Class{"slow", 10 * time.Second, 200 * time.Millisecond}
	if err != nil || len(classes) != 2 || classes[1] != slow {
		t.Errorf("%+v, %v", classes, err)
	}
	for _, bad := range []string{
		"", "fast", "fast=1s", "fast=1s/", "=1s/1ms", "fast=1s/-1ms", "fast=0s/1ms", "a=1s/1s,",
	} {
		if got, err := ParseClasses(bad); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
	shares, err := ParseTenants("10,5,5")
	if err != nil || len(shares) != 3 || shares[0] != 0.5 || shares[2] != 0.25 {
		t.Errorf("%v, %v", shares, err)
	}
	for _, bad := range []string{"", "1,", "0,1", "-1", "NaN", "Inf", "x"} {
		if got, err := ParseTenants(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}
