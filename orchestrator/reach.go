package orchestrator

import "tandem/orchestrator/fleet"

// reach is the way to one replica.
type reach = fleet.Endpoint
