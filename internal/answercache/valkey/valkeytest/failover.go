package valkeytest

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartWatched runs a master with a replica, and a sentinel that knows both by a name.
func StartWatched(t testing.TB, name string) (master, replica, sentinel *Server) {
	t.Helper()
	master = Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(master.Addr)
	replica = Start(t, "--replicaof", host+" "+port)
	raw := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer raw.Close()
	await(t, "the replica follows", func() bool {
		return strings.Contains(raw.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel = StartSentinel(t, name, master.Addr)
	watch := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer watch.Close()
	await(t, "the sentinel knows the replica", func() bool {
		known, err := watch.Replicas(t.Context(), name).Result()
		return err == nil && len(known) == 1
	})
	return master, replica, sentinel
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not happen that %s", what)
		}
	}
}
