package main

import (
	"fmt"
	"strconv"
)

// startSimulated starts a simulated engine in the place of the real one, at the same ports.
func (e *engine) startSimulated() (*process, error) {
	at := "tcp://" + e.host() + ":"
	args := []string{
		"sim", "--model", modelName, "--block-size", strconv.Itoa(blockTokens), "--blocks", strconv.Itoa(e.Blocks),
		"--max-model-len", strconv.Itoa(contextTokens), "--vocab", "2048", "--enable-scale-out",
		"--listen", fmt.Sprintf("%s:%d", e.host(), e.Port), "--side-host", e.host(), "--side-port",
		strconv.Itoa(e.Side),
	}
	if e.Role != "" {
		args = append(args, "--events", at+strconv.Itoa(e.Events), "--replay", at+strconv.Itoa(e.Replay))
	}
	if e.Role == "" || e.Mute {
		args = append(args, "--no-connector")
	}
	if e.Connector == pushes {
		args = append(args, "--kv-protocol", "push")
	}
	return e.launch(nil, e.simulator, append(args, e.Flags...)...)
}
