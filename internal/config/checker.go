package config

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// checker collects problems.
type checker struct{ problems Problems }

func (ck *checker) add(field, message, fix string) {
	ck.problems = append(ck.problems, Problem{Field: field, Message: message, Fix: fix})
}

func (ck *checker) oneOf(field, got string, known ...string) {
	if !slices.Contains(known, got) {
		ck.add(field, fmt.Sprintf("%q is not known", got), didYouMean(got, known))
	}
}

func (ck *checker) between(field string, got, low, high int) {
	if got < low || got > high {
		ck.add(field, fmt.Sprintf("is %d", got), fmt.Sprintf("choose from %d to %d", low, high))
	}
}

func (ck *checker) size(field string, got, low Bytes) {
	if got < low {
		ck.add(field, fmt.Sprintf("is %d bytes", int64(got)), fmt.Sprintf("give at least %d bytes", int64(low)))
	}
}

func (ck *checker) share(field string, got float64) {
	if !(got >= 0 && got <= 1) {
		ck.add(field, fmt.Sprintf("is %v", got), "choose a share from 0 to 1")
	}
}

func (ck *checker) weight(field string, got float64) {
	if !(got >= 0) || math.IsInf(got, 0) {
		ck.add(field, fmt.Sprintf("is %v", got), "choose a number from 0 up")
	}
}

// longer wants a duration of at least low, in any case not a negative one.
func (ck *checker) longer(field string, got, low time.Duration) {
	if got < low {
		ck.add(field, fmt.Sprintf("is %v", got), fmt.Sprintf("give at least %v", low))
	}
}
