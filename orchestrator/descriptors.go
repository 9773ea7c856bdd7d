package orchestrator

const (
	ownFiles   = 64 // descriptors for listeners, event streams, metrics of engines, files and the admin listener
	eachFiles  = 4  // for a client: its connection, one to an engine of each pool, and one that waits for use
	leastConns = 16
	mostConns  = 1 << 24
)

// mostClients is clientConns of this process.
func mostClients() int { return clientConns(openFiles()) }

// clientConns is how many clients may be connected at a time, so that engines always get the descriptors they
// need; 0 for no limit.
func clientConns(files uint64) int {
	if files == 0 {
		return 0
	}
	return int(min(max(leastConns, (max(files, ownFiles)-ownFiles)/eachFiles), mostConns))
}
