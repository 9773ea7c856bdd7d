package cluster

import (
	"fmt"
	"slices"
	"time"
)

// HostTime is what an engine's host spends on requests and steps, beside the GPU. The zero value spends
// nothing on requests, and on steps what the profile says.
type HostTime struct {
	Step    time.Duration // of a step; 0: the profile's
	Request time.Duration // of each leg, before its engine's scheduler sees it: server, parsing, hand-over
	Token   time.Duration // of each token of the prompt, once for a request, wherever it is tokenized
	Post    time.Duration // of each descriptor of a transfer, on the thread that makes the decode engine's steps
}

// measuredHost is what runs of real engines say of the host.
//
//   - Step: fitted to the first third of a run of an 8B model on one GPU. The kernels there needed no factor
//     beside it (0.997). The other measured run says 0.75 ms. - Request: by how much the requests of both
//     runs were later with their first token than simulated ones where hardly anybody waited (median of 49:
//     8.6 ms, of 34: 7.4 ms; prompts of some 750 tokens). There was no HTTP server in between. - Token:
//     reported by users of other routers (200 to 300 ms for 100,000 to 200,000 tokens); those two runs do
//     not tell it from what their kernels are off.
//
// What a decoded token costs on its way to the client is not in it: nobody waits for it but that token.
var measuredHost = HostTime{
	Step: 1900 * time.Microsecond, Request: 8 * time.Millisecond, Token: 1500 * time.Nanosecond,
}

// posting is what a GPU shows: of transfers of 188 MB, with a descriptor for each block of 16 tokens and each
// of 32 layers, 22 ms each were posting.
const posting = 4 * time.Microsecond

var hostModels = []string{"profile", "measured", "posting"}

// ParseHostTime reads a model of the host by its name: "profile", or "", for half a millisecond a step and
// nothing a request; "measured" for what measured runs say;
// "posting" for that and what posting descriptors takes.
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
	return HostTime{}, fmt.Errorf("no model of the host %q: one of %q", name, slices.Clone(hostModels))
}

// SetStepTime takes the host's time a step over into the engines.
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
