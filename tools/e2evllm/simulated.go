package main

import (
	"fmt"
	"strconv"
)

// startSimulated starts a simulated engine in the place of the real one, at the same ports.
func (e *engine) startSimulated() (*process, error) {
	local := "tcp://127.0.0.1:"
	args := []string{
		"sim", "--model", modelName, "--block-size", strconv.Itoa(blockTokens), "--blocks", strconv.Itoa(e.Blocks),
		"--max-model-len", strconv.Itoa(contextTokens), "--vocab", "2048", "--enable-scale-out",
		"--listen", fmt.Sprintf("127.0.0.1:%d", e.Port), "--side-port", strconv.Itoa(e.Side),
	}
	if e.Role != "" {
		args = append(args, "--events", local+strconv.Itoa(e.Events), "--replay", local+strconv.Itoa(e.Replay))
	}
	if e.Role == "" || e.Mute {
		args = append(args, "--no-connector")
	}
	return startProcess(e.Name, e.work, nil, e.simulator, append(args, e.Flags...)...)
}
