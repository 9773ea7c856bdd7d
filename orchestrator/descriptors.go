package orchestrator

const (
	ownFiles   = 64 // descriptors for listeners, event streams, metrics of engines, files and the admin listener
	eachFiles  = 4  // for each client: its connection, one to an engine of each pool, and a spare one
	leastConns = 16
	mostConns  = 1 << 24
)

// mostClients returns clientConns for this process.
func mostClients() int { return clientConns(openFiles()) }

// clientConns returns how many clients may be connected at a time, so that enough descriptors remain for
// engines; 0: no limit.
func clientConns(files uint64) int {
	if files == 0 {
		return 0
	}
	return int(min(max(leastConns, (max(files, ownFiles)-ownFiles)/eachFiles), mostConns))
}
