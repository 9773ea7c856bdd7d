package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A line states the progress and the remaining work. Frequent updates are printed only every five seconds.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReporter(&out)
		r.say("begins", 0)
		for i := range 12 {
			time.Sleep(time.Second)
			r.at("plays", float64(i+1)/100)
		}
		time.Sleep(48 * time.Second)
		r.say("half of it", 0.5)
		r.say("all", 1)
		want := "   0.0 s  begins\n" +
			"   5.0 s  plays; 5 %, about 1m40s left\n" +
			"  10.0 s  plays; 10 %, about 1m30s left\n" +
			"  60.0 s  half of it; 50 %, about 1m0s left\n" +
			"  60.0 s  all\n"
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}
