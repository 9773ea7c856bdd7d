package fleet

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/config"
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

// settings is what the configuration says about one engine server and how to watch it. It is immutable: a
// reload makes new settings. Every setting can change while the server is watched and serves: see
// [Watcher.configure].
type settings struct {
	cfg   config.Replica
	id    string // of cfg
	drain bool   // by the file, or on command
	*poolSettings
}

// poolSettings is what the configuration says about all servers of a pool. It is immutable, and the same
// pointer as before if nothing has changed: so a change of one server is no change of the others.
type poolSettings struct {
	pool     config.Pool // without its replicas
	tls      *tls.Config // the same pointer as before if no TLS setting has changed
	probe    time.Duration
	connect  time.Duration
	failures int
	pullPort int // connector.p2p_port
	// connector.bootstrap_port of a prefill pool, if the connector needs the addresses of blocks; otherwise 0
	bootstrapPort int
	// connector.handshake_port and notify_port of a decode pool, if prefill engines write there; otherwise 0
	writtenAt [2]int
}

// locates reports whether the servers have addresses that engines of the other pool must be told.
func (p *poolSettings) locates() bool { return p.bootstrapPort > 0 || p.writtenAt[0] > 0 }

// located reports whether at is where the blocks of a rank are, under the present settings: a reload may have
// changed the ports of decode engines.
func (s *server) located(at replica.KVAddress) bool {
	ports := s.set.Load().writtenAt
	return at != (replica.KVAddress{}) && (ports[0] == 0 || at.EngineID == writtenName(s.host, ports))
}

// serverKey identifies a server across reloads. Another key means other blocks and another process;
// everything else is a setting.
type serverKey struct {
	role replica.Role
	url  string
}

// name is the replica's name in metrics, logs and headers. A server in both pools is two replicas of one
// engine.
func (s *settings) name(role replica.Role) string {
	if s.cfg.Shared {
		return s.id + "/" + role.String()
	}
	return s.id
}

// usualPause is the longest time between two signs of life of a server that gives signs only when it is
// scraped.
func (s *settings) usualPause() time.Duration {
	return 2*s.pool.PollInterval + time.Second
}
