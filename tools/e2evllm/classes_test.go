package main

import (
	"testing"
	"time"
)

// orderedAt is a request that came at a second, and had room at another.
func orderedAt(came, room int) *ordered {
	return &ordered{came: time.Unix(int64(came), 0), room: time.Unix(int64(room), 0)}
}

// patientOnes are n requests that came together, and had room one a second.
func patientOnes(n int) (all []*ordered) {
	for i := range n {
		all = append(all, orderedAt(0, i+1))
	}
	return all
}

func TestUrgentRequestsOvertake(t *testing.T) {
	for name, c := range map[string]struct {
		urgent *ordered
		want   string
	}{
		"at once":             {orderedAt(5, 6), ""},
		"after one in ten":    {orderedAt(5, 8), ""},
		"behind all":          {orderedAt(5, 40), "25 of 25 requests"},
		"when nobody waited":  {orderedAt(28, 29), "too few to show an order"},
		"behind a few of all": {orderedAt(5, 15), "9 of 25 requests"},
	} {
		t.Run(name, func(t *testing.T) {
			holdsOr(t, overtakes([]*ordered{c.urgent}, patientOnes(30)), c.want)
		})
	}
}

func TestSharesAreEqual(t *testing.T) {
	for name, c := range map[string]struct {
		last int // second in which the last of the few has room
		want string
	}{
		"one by one":   {7, ""},
		"at once":      {5, ""},
		"half a share": {12, "8 requests of the other tenant"},
		"first come":   {31, "too few to show shares"},
	} {
		t.Run(name, func(t *testing.T) {
			few := []*ordered{orderedAt(4, 5), orderedAt(4, 5), orderedAt(4, c.last)}
			holdsOr(t, fairly(few, patientOnes(30)), c.want)
		})
	}
}

func TestBillsAreCounted(t *testing.T) {
	c := &tenants{asked: []*ordered{
		{key: shop, answer: answer{status: 200, usage: usage{Prompt: 7, Completion: 2}, cached: 3}},
		{key: shop, answer: answer{status: 200, usage: usage{Prompt: 5, Completion: 1}}},
	}}
	holdsOr(t, c.sameBills("it", map[string]bill{shop: {2, 12, 3, 3}}), "")
	holdsOr(t, c.sameBills("it", map[string]bill{shop: {2, 12, 4, 3}}), "but the clients counted")
	holdsOr(t, c.sameBills("it", map[string]bill{}), "but the clients counted")
}
