package cluster

import (
	"fmt"
	"slices"
	"time"
)

// HostTime is the CPU time of an engine for requests and steps, in addition to the GPU's time. With the zero
// value requests cost nothing, and steps cost what the profile says.
type HostTime struct {
	Step    time.Duration // per step; 0: the profile's
	Request time.Duration // per leg, before the scheduler sees the leg: HTTP server, parsing, hand-over
	Token   time.Duration // per prompt token, once per request, wherever the prompt is tokenized
	Post    time.Duration // per descriptor of a transfer, on the thread that makes the decode engine's steps
}

// measuredHost is the host time in runs of real engines.
//
//   - Step: fitted to the first third of a run of an 8B model on one GPU. The kernels' times needed no
//     correction (0.997). The other measured run gives 0.75 ms.
//   - Request: how much later than in the simulation the first tokens of both runs came, for requests that
//     hardly waited (median of 49 requests: 8.6 ms, of 34: 7.4 ms; prompts of about 750 tokens). These runs
//     had no HTTP server in between.
//   - Token: reported by users of other routers (200 to 300 ms for 100,000 to 200,000 tokens). In the two
//     runs this time cannot be separated from the error of the kernels' times.
//
// The cost of a decoded token on its way to the client is left out: it delays only this token.
var measuredHost = HostTime{
	Step: 1900 * time.Microsecond, Request: 8 * time.Millisecond, Token: 1500 * time.Nanosecond,
}

// posting is measured on a GPU: transfers of 188 MB, with one descriptor per block of 16 tokens and per layer
// of 32, took 22 ms each for posting.
const posting = 4 * time.Microsecond

var hostModels = []string{"profile", "measured", "posting"}

// ParseHostTime reads the name of a model of the host: "profile" or "" for half a millisecond per step and
// nothing per request; "measured" for the times of measured runs; "posting" for these times and the time to
// post descriptors.
func ParseHostTime(name string) (HostTime, error) {
	switch name {
	case "", hostModels[0]:
		return HostTime{}, nil
	case hostModels[1]:
		return measuredHost, nil
	case hostModels[2]:
		h := measuredHost
		h.Post = posting
		return h, nil
	}
	return HostTime{}, fmt.Errorf("no model of the host %q: want one of %q", name, slices.Clone(hostModels))
}

// SetStepTime sets the host's time per step in the engines.
func (c *Config) SetStepTime() {
	if c.Host.Step == 0 {
		return
	}
	for _, nodes := range c.Nodes {
		for i := range nodes {
			nodes[i].Engine.Cost.Post = c.Host.Post.Seconds()
			nodes[i].Engine.Cost.Host = c.Host.Step.Seconds()
		}
	}
}

// onHost is the time from the arrival of a leg at its engine's server until the scheduler sees it.
func (c *Cluster) onHost(x *call) time.Duration {
	took := c.cfg.Host.Request
	if !x.tokenized {
		x.tokenized = true
		took += time.Duration(len(x.prompt)) * c.cfg.Host.Token
	}
	return took
}
