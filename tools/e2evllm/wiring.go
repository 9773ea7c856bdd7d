package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// The connectors of engines that hand blocks over; "" is NIXL pull.
const (
	pushes      = "push"
	beforeStore = "multi"           // NIXL pull, and behind it a store
	behindStore = "multi, reversed" // the same with the store first
	ferries     = "mooncake"
	caches      = "lmcache"
)

// transfer is the value of vLLM's flag --kv-transfer-config for the engine.
func (e *engine) transfer() string {
	nixl := func(connector string) string {
		return fmt.Sprintf(`{"kv_connector":%q,"kv_role":%q,"kv_buffer_device":"cpu",`+
			`"kv_load_failure_policy":"fail","kv_connector_extra_config":{"num_threads":1}}`, connector, e.Role)
	}
	multi := func(first, second string) string {
		return fmt.Sprintf(`{"kv_connector":"MultiConnector","kv_role":%q,"kv_load_failure_policy":"fail",`+
			`"kv_connector_extra_config":{"connectors":[%s,%s]}}`, e.Role, first, second)
	}
	// Each engine has a store of its own: engines that share one read files that another has half written.
	store := fmt.Sprintf(`{"kv_connector":"ExampleConnector","kv_role":"kv_both",`+
		`"kv_connector_extra_config":{"shared_storage_path":%q}}`, filepath.Join(e.work, "store-"+e.Name))
	const pull = "NixlConnector"
	switch e.Connector {
	case pushes:
		return nixl("NixlPushConnector")
	case beforeStore:
		return multi(nixl(pull), store)
	case behindStore:
		return multi(store, nixl(pull))
	case caches:
		return fmt.Sprintf(`{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both",`+
			`"kv_connector_extra_config":{"lmcache.mp.host":"tcp://%s","lmcache.mp.port":%d,`+
			`"lmcache.mp.mq_timeout":%.0f}}`, e.host(), e.Side, cacheWait.Seconds())
	case ferries:
		return fmt.Sprintf(`{"kv_connector":"MooncakeConnector","kv_role":%q,"kv_load_failure_policy":"fail",`+
			`"kv_connector_extra_config":{"mooncake_protocol":"tcp"}}`, e.Role)
	}
	return nixl(pull)
}

// ferryTime is how long engines with Mooncake keep prefilled blocks, and wait for them. The default of vLLM
// is 480 s.
const ferryTime = time.Minute

// wiringVars are the variables of an engine for its connector. The side channel of Mooncake is the bootstrap
// server.
func (e *engine) wiringVars() []string {
	switch e.Connector {
	case caches:
		return e.env.cacheVars()
	case ferries:
		return []string{
			"VLLM_HOST_IP=" + e.host(), "MC_FORCE_TCP=1", fmt.Sprintf("VLLM_MOONCAKE_BOOTSTRAP_PORT=%d", e.Side),
			fmt.Sprintf("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=%.0f", ferryTime.Seconds()),
		}
	}
	return nil
}

// wiredBy gives all engines of a fleet that hand blocks over this connector.
func wiredBy(connector string, engines []*engine) []*engine {
	for _, e := range engines {
		if e.Role == producer || e.Role == consumer {
			e.Connector = connector
		}
	}
	return engines
}

// wired returns the index of the first engine with this connector, -1 if there is none.
func wired(connector string, engines []*engine) int {
	return slices.IndexFunc(engines, func(e *engine) bool { return e.Connector == connector })
}

// connectorLine is the line of Tandem's configuration for the connector of the engines; "" is the default.
func connectorLine(engines []*engine) string {
	for _, e := range engines {
		switch {
		case e.Connector == pushes:
			return "connector: {type: nixl-push}"
		case e.Connector == caches:
			return "connector: {type: lmcache}"
		case e.Connector == ferries && e.Role == producer:
			return fmt.Sprintf("connector: {type: mooncake, lease: %v, bootstrap_port: %d}", ferryTime, e.Side)
		}
	}
	return ""
}
