package main

import (
	"fmt"
	"os"
	"strings"
)

// member is the engine in a pool of a router's configuration. Before 0.30 an engine cannot be asked where its
// events are.
func (e *engine) member() string {
	if e.Version == "" {
		return fmt.Sprintf("{name: %s, url: %q}", e.Name, e.url())
	}
	return e.memberAt(e.url())
}

// memberAt is the engine at another URL, with its events where they are.
func (e *engine) memberAt(url string) string {
	return fmt.Sprintf(
		`{name: %s, url: %q, events: {endpoint: "tcp://127.0.0.1:%d", replay: "tcp://127.0.0.1:%d"}}`, e.Name, url,
		e.Events, e.Replay,
	)
}

// binding is what the engine's threads are bound to: nothing; but 0.20.0 fails to start unbound (an
// IndexError while it logs the binding), and gets one of our CPUs.
func (e *engine) binding() string {
	if e.Version != "0.20.0" {
		return "nobind"
	}
	status, _ := os.ReadFile("/proc/self/status")
	return lastCPU(string(status))
}

// lastCPU is the last of the CPUs that a process may use, by its /proc/PID/status: "Cpus_allowed_list:
// 0-3,5".
func lastCPU(status string) string {
	_, list, _ := strings.Cut(status, "Cpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	list = strings.TrimSpace(list)
	return list[strings.LastIndexAny(list, ",-")+1:]
}
