package fleet

import (
	"crypto/tls"
	"reflect"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
)

// settings is what the configuration says about one engine server and how to watch it. It is immutable: a
// reload makes new settings. Every setting can change while the server is watched and serves: see
// [Watcher.configure].
type settings struct {
	order    int // place in the file
	cfg      config.Replica
	pool     config.Pool
	tls      *tls.Config // the same pointer as before if no TLS setting has changed
	probe    time.Duration
	connect  time.Duration
	failures int
	drain    bool // by the file, or on command
}

// serverKey identifies a server across reloads. Another key means other blocks and another process;
// everything else is a setting.
type serverKey struct {
	role replica.Role
	url  string
}

// wanted makes the settings of every server in cfg, by its key. It reads the files that cfg names.
func (f *Fleet) wanted(cfg *config.Config) (map[serverKey]*settings, error) {
	out := map[serverKey]*settings{}
	drain := drainedByFile(cfg)
	trust := map[replica.Role]*tls.Config{}
	for _, side := range []struct {
		role replica.Role
		pool config.Pool
	}{{replica.Prefill, cfg.Pools.Prefill}, {replica.Decode, cfg.Pools.Decode}} {
		read, err := cfg.EngineTLS(side.pool)
		if err != nil {
			return nil, err
		}
		if old := f.trust[side.role]; old != nil && config.SameTLS(old, read) {
			read = old
		}
		trust[side.role] = read
		replicas := side.pool.Replicas
		side.pool.Replicas = nil // a setting of one server does not change with the others
		for i, r := range replicas {
			s := &settings{
				order: i, cfg: r, pool: side.pool, tls: read, probe: cfg.Timeouts.Probe, connect: cfg.Timeouts.Connect,
				failures: cfg.Health.Failures, drain: drain[r.URL],
			}
			if _, err := engine.New(f.options(s)); err != nil {
				return nil, err
			}
			out[serverKey{side.role, r.URL}] = s
		}
	}
	f.trust = trust
	return out, nil
}

// name is the replica's name in metrics, logs and headers. A server in both pools is two replicas of one
// engine.
func (s *settings) name(role replica.Role) string {
	if s.cfg.Shared {
		return s.cfg.ID() + "/" + role.String()
	}
	return s.cfg.ID()
}

// same reports whether s and o differ in nothing but the place in the file.
func (s *settings) same(o *settings) bool {
	placed := *o
	placed.order = s.order
	return reflect.DeepEqual(s, &placed)
}

// options is what the settings mean for the server's client.
func (f *Fleet) options(s *settings) engine.Options {
	return engine.Options{
		URL: s.cfg.URL, TLS: s.tls, APIKey: s.pool.APIKey.Reveal(), Dial: f.opt.Dial, DialTimeout: s.connect,
		Kept: f.opt.Kept,
	}
}

// usualPause is the longest time between two signs of life of a server that gives signs only when it is
// scraped.
func (s *settings) usualPause() time.Duration {
	return 2*s.pool.PollInterval + time.Second
}
