package kvevents

import (
	"cmp"
	"fmt"
)

// PublisherOptions say how a [Publisher] publishes; the zero value of all but Endpoint is right.
type PublisherOptions struct {
	Context      *Context // ZMQ context to share; nil: a new one
	Endpoint     string   // to bind the PUB socket to; port 0 picks one: "tcp://127.0.0.1:0"
	Replay       string   // to bind the replay ROUTER to, "" for none
	Topic        string
	Form         Form
	ReplayFrames int // 4 (vLLM 0.26 and later) or 3; 0 means 4
	BufferSteps  int // batches kept for replay, default 10,000 as in vLLM; negative: none
	HWM          int // high-water mark of the PUB socket, default 100,000 as in vLLM
	// High-water mark of the replay ROUTER, default libzmq's 1,000, as in vLLM before 0.33. Since then it is
	// twice BufferSteps + 1, so that a whole replay always fits.
	ReplayHWM int
}

func (o PublisherOptions) withDefaults() (PublisherOptions, error) {
	if o.Context == nil {
		o.Context = new(Context)
	}
	o.ReplayFrames = cmp.Or(o.ReplayFrames, 4)
	o.BufferSteps = max(cmp.Or(o.BufferSteps, 10_000), 0)
	o.HWM = cmp.Or(o.HWM, 100_000)
	o.ReplayHWM = cmp.Or(o.ReplayHWM, 1000)
	if o.ReplayFrames != 3 && o.ReplayFrames != 4 {
		return o, fmt.Errorf("replay of %d frames: 3 or 4", o.ReplayFrames)
	}
	return o, nil
}
