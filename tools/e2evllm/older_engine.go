package main

import (
	"fmt"
	"os"
	"strings"
)

// member is the engine as a replica in a router's configuration. Before 0.30 an engine does not report its
// event addresses.
func (e *engine) member() string {
	if e.Version == "" {
		return fmt.Sprintf("{name: %s, url: %q}", e.Name, e.url())
	}
	return e.memberAt(e.url())
}

// memberAt is the engine at another URL, with its own event addresses.
func (e *engine) memberAt(url string) string {
	return fmt.Sprintf(
		`{name: %s, url: %q, events: {endpoint: "tcp://127.0.0.1:%d", replay: "tcp://127.0.0.1:%d"}}`, e.Name,
		url,
		e.Events, e.Replay,
	)
}

// binding is the CPU to which the engine's threads are bound. Engines are not bound, except 0.20.0: without a
// binding it fails to start (an IndexError while it logs the binding).
func (e *engine) binding() string {
	if e.Version != "0.20.0" {
		return "nobind"
	}
	status, _ := os.ReadFile("/proc/self/status")
	return lastCPU(string(status))
}

// lastCPU is the last CPU that a process may use, by its /proc/PID/status: "Cpus_allowed_list: 0-3,5".
func lastCPU(status string) string {
	_, list, _ := strings.Cut(status, "Cpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	list = strings.TrimSpace(list)
	return list[strings.LastIndexAny(list, ",-")+1:]
}
