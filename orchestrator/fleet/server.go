package fleet

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// server is the engine server that a watcher watches: its address, its role, the way there, and its settings.
// The parts of a watcher share it. Everything but the settings is immutable. Safe for concurrent use.
type server struct {
	key     serverKey
	role    replica.Role
	host    string
	client  *engine.Client
	process *process
	pool    Pool // of its role
	log     *slog.Logger

	set atomic.Pointer[settings]
}

// Role is the pool that the server belongs to.
func (s *server) Role() replica.Role { return s.role }

// URL is where the server listens.
func (s *server) URL() string { return s.key.url }

// Name is what the replica is called in metrics, logs and headers; the ranks of a server of several have a
// number behind it.
func (s *server) Name() string { return s.set.Load().name(s.role) }

// GivenName is the name that the configuration gives the replica, "" for none.
func (s *server) GivenName() string { return s.set.Load().cfg.Name }

// Draining reports whether the server gets no new requests.
func (s *server) Draining() bool { return s.set.Load().drain }

// CacheEpoch is the cache epoch of the server's process, for all of its endpoints.
func (s *server) CacheEpoch() uint32 { return s.process.epoch.Load() }

func (s *server) logForgotten(level slog.Level, name, reason string) {
	s.log.Log(context.Background(), level, "replica's blocks are forgotten", "replica", name,
		"pool", s.role.String(), "reason", reason)
}
