package valkey

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tandem-router/tandem/internal/answercache/valkey/valkeytest"
)

// goesDown makes lookups until the store stops asking the server, and checks that no lookup took long.
func (c *counted) goesDown(t *testing.T) {
	t.Helper()
	late := starved(t)
	for range mostBad {
		a, took := c.get(1)
		if lost := late(); took > budget+slack+lost || a != nil {
			t.Errorf("a lookup took %v, the budget is %v, the machine was busy for %v; got %v", took, budget, lost, a)
		}
	}
	if c.Up() || c.log.has("WARN", "does not work") != 1 {
		t.Fatalf("the server counts as working: up %v, log %s", c.Up(), c.log.text.String())
	}
	before := c.looks.of(Down)
	_, took := c.get(1)
	if lost := late(); c.looks.of(Down) != before+1 || took > budget+lost {
		t.Errorf("a lookup still asks a server that is down: it took %v, and the machine was busy for %v",
			took, lost)
	}
	dropped := c.writes.of(Dropped)
	if c.put(2); c.writes.of(Dropped) != dropped+1 {
		t.Error("the store writes to a server that is down")
	}
}

// comesBack makes lookups until the store uses the server again.
func (c *counted) comesBack(t *testing.T) {
	t.Helper()
	until(t, "it is used again", func() bool { c.get(1); return c.Up() })
	if c.log.has("INFO", "works again") != 1 {
		t.Errorf("the log does not say that the server works again: %s", c.log.text.String())
	}
	c.keeps(t, 3)
}

// With a server that does not work, a lookup takes no longer than the budget, and soon no time at all.
// When the server works again, the store uses it without help.
func TestOutages(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(s *valkeytest.Server) }{
		"killed": {(*valkeytest.Server).Kill, (*valkeytest.Server).Restart},
		"frozen": {(*valkeytest.Server).Freeze, (*valkeytest.Server).Unfreeze},
	} {
		t.Run(name, func(t *testing.T) {
			s := valkeytest.Start(t)
			store := open(t, s)
			store.keeps(t, 1)
			outage.begin(s)
			store.goesDown(t)
			outage.end(s)
			store.comesBack(t)
		})
	}
}

// A server whose answers come too late counts as not working, until its answers come in time again.
func TestSlowServer(t *testing.T) {
	s := valkeytest.Start(t)
	link := valkeytest.NewSlowLink(t, s.Addr)
	store := open(t, s, func(o *Options) { o.Addresses = []string{link.Addr} })
	store.keeps(t, 1)
	link.Delay(3 * budget)
	store.goesDown(t)
	if store.looks.of(Late) < mostBad {
		t.Errorf("%d lookups were late", store.looks.of(Late))
	}
	link.Delay(0)
	store.comesBack(t)
}

// A connection may take longer to open than the time limit of a lookup. It is still opened, and later
// lookups use it.
func TestConnectionsMayTakeLongerThanTheBudget(t *testing.T) {
	s := valkeytest.Start(t)
	direct := open(t, s)
	direct.keeps(t, 1)
	link := valkeytest.NewSlowLink(t, s.Addr)
	link.OnlyFirst()
	link.Delay(3 * budget)
	store := open(t, s, func(o *Options) { o.Addresses = []string{link.Addr} })
	if store.has(1) {
		t.Fatal("the connection opened within the budget: this test shows nothing")
	}
	until(t, "the answer comes over that connection", func() bool { return store.has(1) })
}

// A full server is logged once and is still read. The store writes answers again when the server has room.
func TestFullServer(t *testing.T) {
	s := valkeytest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer raw.Close()
	store := open(t, s)
	store.keeps(t, 1)
	set := func(limit string) {
		t.Helper()
		if err := raw.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1") // the default policy is noeviction
	for n := range mostBad + 2 {
		store.put(10 + n)
	}
	if n := store.writes.of(Unwritten); n != mostBad+2 || store.log.has("WARN", "takes no answers") != 1 {
		t.Errorf("%d writes failed; log %s", n, store.log.text.String())
	}
	if !store.Up() || store.has(10) {
		t.Error("the store does not read a full server")
	}
	until(t, "what it has is read", func() bool { return store.has(1) })
	set("0")
	store.keeps(t, 2)
	if store.log.has("INFO", "takes answers again") != 1 {
		t.Errorf("the log does not say that the server takes answers again: %s", store.log.text.String())
	}
}

// Emptying the server removes the answers and has no other effect.
func TestFlushedServer(t *testing.T) {
	s := valkeytest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer raw.Close()
	store := open(t, s)
	store.keeps(t, 1)
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if store.has(1) || !store.Up() {
		t.Error("an empty server gave an answer, or counts as not working")
	}
	store.keeps(t, 1)
}

// A wrong password counts as an outage. A new configuration ends the outage.
func TestWrongPassword(t *testing.T) {
	s := valkeytest.Start(t, "--requirepass", "right")
	password := func(p string) func(*Options) { return func(o *Options) { o.Password = p } }
	wrong := open(t, s, password("wrong"))
	wrong.goesDown(t)
	if wrong.looks.of(Failed) == 0 || strings.Contains(wrong.log.text.String(), "=wrong") {
		t.Errorf("%d lookups failed; log %s", wrong.looks.of(Failed), wrong.log.text.String())
	}
	open(t, s, password("right")).keeps(t, 1)
}

// When sentinels promote a replica, answers are read and written there without any message to the router.
func TestSentinelsPromoteAReplica(t *testing.T) {
	master, replica, sentinel := valkeytest.StartWatched(t, "answers")
	raw := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer raw.Close()
	store := open(t, sentinel, func(o *Options) { o.Master = "answers" })
	store.keeps(t, 1)
	until(t, "the replica has it", func() bool {
		k, _ := answer(1)
		return raw.Exists(context.Background(), store.name(k)).Val() == 1
	})
	master.Kill()
	late := starved(t)
	until(t, "the answer is read from the replica", func() bool {
		a, took := store.get(1)
		if lost := late(); took > budget+slack+lost {
			t.Errorf("a lookup took %v, the budget is %v, and the machine was busy for %v", took, budget, lost)
		}
		return a != nil
	})
	store.keeps(t, 2)
}

// In a cluster, each answer is stored on the server of its slot.
func TestCluster(t *testing.T) {
	s := valkeytest.StartCluster(t)
	raw := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer raw.Close()
	if err := raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the cluster works", func() bool {
		return strings.Contains(raw.ClusterInfo(context.Background()).Val(), "cluster_state:ok")
	})
	store := open(t, s, func(o *Options) { o.Cluster = true })
	for n := range 5 {
		store.keeps(t, n)
	}
	s.Freeze()
	store.goesDown(t)
	s.Unfreeze()
	store.comesBack(t)
}

// Over TLS the server must show a trusted certificate.
func TestServerOverTLS(t *testing.T) {
	https := httptest.NewUnstartedServer(nil)
	https.StartTLS()
	defer https.Close()
	cert := https.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile := file("cert", "CERTIFICATE", cert.Certificate[0])
	plain := valkeytest.Start(t) // its address is free after its end
	plain.Kill()
	_, port, _ := net.SplitHostPort(plain.Addr)
	s := valkeytest.Start(t, "--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", certFile,
		"--tls-key-file", file("key", "PRIVATE KEY", key), "--tls-ca-cert-file", certFile)
	believed := x509.NewCertPool()
	believed.AddCert(https.Certificate())
	trust := func(c *tls.Config) func(*Options) {
		return func(o *Options) { o.TLS, o.Addresses = c, []string{plain.Addr} }
	}
	open(t, s, trust(&tls.Config{RootCAs: believed, MinVersion: tls.VersionTLS12})).keeps(t, 1)
	open(t, s, trust(&tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12})).goesDown(t)
}
