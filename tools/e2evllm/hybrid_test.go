package main

import (
	"fmt"
	"net/http"
	"testing"
)

func TestGroupsAreSeveral(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []int
		want   string
	}{
		"two with a window":  {[]int{5, 5, 20}, ""},
		"one group":          {[]int{20}, "no hybrid was tried"},
		"all of every group": {[]int{20, 20}, "no hybrid was tried"},
		"none whole":         {[]int{5, 5}, "no hybrid was tried"},
		"one empty":          {[]int{5, 0, 20}, "no hybrid was tried"},
		"none":               {nil, "no hybrid was tried"},
	} {
		t.Run(name, func(t *testing.T) { holdsOr(t, severalGroups(c.blocks, 20), c.want) })
	}
}

func TestGuessesCameTrue(t *testing.T) {
	for accepted, want := range map[int]string{0: "no guess of d0 came true", 7: ""} {
		e := fakeEngine(t, "d0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "vllm:spec_decode_num_draft_tokens_total{} 9\n")
			fmt.Fprintf(w, "vllm:spec_decode_num_accepted_tokens_total{} %d\n", accepted)
		}))
		holdsOr(t, guesses(t.Context(), e), want)
	}
}
