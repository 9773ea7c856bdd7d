package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Class is a class of requests with its own goals.
type Class struct {
	Name string
	TTFT time.Duration // from the arrival of a request until its first token
	TPOT time.Duration // mean time between tokens
}

// Mix gives classes and tenants to the requests of a trace. All requests of a session have one class and one
// tenant. A nil Mix gives none.
type Mix struct {
	Classes []Class   // all have about the same number of sessions
	Tenants []float64 // each tenant's share of the sessions; in sum 1
}

// Class returns the class of a session of the trace; nil without classes.
func (m *Mix) Class(session int) *Class {
	if m == nil || len(m.Classes) == 0 {
		return nil
	}
	return &m.Classes[int(drawn(session, 1)*float64(len(m.Classes)))]
}

// Tenant returns the number of the tenant that a session belongs to, from 0.
func (m *Mix) Tenant(session int) int {
	if m == nil {
		return 0
	}
	at := drawn(session, 2)
	for i, share := range m.Tenants {
		if at -= share; at < 0 {
			return i
		}
	}
	return max(0, len(m.Tenants)-1)
}

// ParseClasses reads classes with their goals, separated by commas: "fast=500ms/20ms,slow=10s/200ms".
func ParseClasses(text string) (all []Class, err error) {
	for one := range strings.SplitSeq(text, ",") {
		name, goals, _ := strings.Cut(one, "=")
		ttft, tpot, _ := strings.Cut(goals, "/")
		c := Class{Name: name}
		var bad error
		c.TTFT, err = time.ParseDuration(ttft)
		c.TPOT, bad = time.ParseDuration(tpot)
		if err != nil || bad != nil || name == "" || min(c.TTFT, c.TPOT) <= 0 {
			return nil, fmt.Errorf("%q: want a class with goals above 0, like fast=500ms/20ms", one)
		}
		all = append(all, c)
	}
	return all, nil
}

// ParseTenants reads the tenants' shares in any unit, separated by commas: "10,1,1".
func ParseTenants(text string) (shares []float64, err error) {
	sum := 0.0
	for one := range strings.SplitSeq(text, ",") {
		share, err := strconv.ParseFloat(one, 64)
		if err != nil || !(share > 0) || share > 1e9 {
			return nil, fmt.Errorf("%q: want a share above 0", one)
		}
		shares = append(shares, share)
		sum += share
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares, nil
}

// drawn returns a number from 0 to below 1, the same in each play.
func drawn(session int, of uint64) float64 {
	x := uint64(session)*0x9e3779b97f4a7c15 + of*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
