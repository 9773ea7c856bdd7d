package orchestrator

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// changes says how to change a field of the configuration if doubling a number or turning a switch does
// not work.
var changes = map[string]func(*config.Config){
	"listen":       func(c *config.Config) { c.Listen = ":8001" },
	"admin.listen": func(c *config.Config) { c.Admin.Listen = "127.0.0.1:9099" },
	"cors.origins": func(c *config.Config) { c.CORS.Origins = []string{"https://chat.example.com"} },
	"admin.hosts":  func(c *config.Config) { c.Admin.Hosts = []string{"admin", "tandem.internal"} },
	"admin.token":  func(c *config.Config) { c.Admin.Token = config.Secret{Value: "one"} },
	"api_keys":     func(c *config.Config) { c.APIKeys = []config.Secret{{Value: "one"}} },
	"keys": func(c *config.Config) {
		c.Keys = []config.Key{{Name: "team", Secret: config.Secret{Value: "one"}}}
	},
	"keys_file": func(c *config.Config) {
		c.KeysFile = "keys"
		c.FileKeys = []config.Key{{Name: "team", Secret: config.Secret{Value: "one"}}}
	},
	"isolation.salt": func(c *config.Config) {
		c.Keys = []config.Key{{Name: "team", Secret: config.Secret{Value: "one"}, Tenant: "tenant"}}
		c.Isolation.Salt = config.Secret{Value: strings.Repeat("s", 32)}
	},
	"classes": func(c *config.Config) {
		c.Classes = []config.Class{{Name: "chat", TTFT: config.Goal(time.Minute)}}
	},
	"aliases": func(c *config.Config) {
		c.Aliases = []config.Alias{
			{Name: "chat", To: []config.Target{{Model: "other", Weight: 1}}, Fallback: "sim"},
		}
	},
	"connector.lease":          func(c *config.Config) { c.Connector.Lease = time.Minute },
	"connector.margin":         func(c *config.Config) { c.Connector.Margin = 10 * time.Second },
	"connector.bootstrap_port": func(c *config.Config) { c.Connector.BootstrapPort = 8999 },
	"connector.handshake_port": func(c *config.Config) { c.Connector.HandshakePort = 6302 },
	"connector.notify_port":    func(c *config.Config) { c.Connector.NotifyPort = 61006 },
	"connector.p2p_port":       func(c *config.Config) { c.Connector.PullPort = 5710 },
	"local":                    func(c *config.Config) { c.Local = config.LocalAuto },
	"scoring.alpha":            func(c *config.Config) { c.Scoring.Alpha = config.Alpha{Value: 2} },
	"scoring.models": func(c *config.Config) {
		c.Scoring.Models = []config.ScoringModel{{Model: "sim", KVBytesPerToken: 1 << 20}}
	},
	"tokenizer.source":         func(c *config.Config) { c.Tokenizer.Source = config.TokensNone },
	"limits.max_prompt_tokens": func(c *config.Config) { c.Limits.MaxPromptTokens = 100_000 },
	"limits.in_flight":         func(c *config.Config) { c.Limits.InFlight = 10_000 },
	"limits.first_token":       func(c *config.Config) { c.Limits.FirstToken = time.Minute },
	"retry.share":              func(c *config.Config) { c.Retry.Share = 0.5 },
	"retry.continue":           func(c *config.Config) { c.Retry.Continue = config.ContinueOff },
	"routers.peers": func(c *config.Config) {
		c.Routers.Peers = []string{"http://other.internal:9090"}
	},
	"answer_cache.memory_bytes": func(c *config.Config) { c.AnswerCache.MemoryBytes = 8 << 20 },
	"tracing.exporter":          func(c *config.Config) { c.Tracing.Exporter = config.TraceNone },
	"tracing.file": func(c *config.Config) {
		c.Tracing = config.Tracing{Exporter: config.TraceFile, File: "spans", Sample: 1}
	},
	"tracing.endpoint": func(c *config.Config) {
		c.Tracing.Exporter, c.Tracing.Endpoint = config.TraceOTLP, "http://collector:4317"
	},
	"tracing.sample": func(c *config.Config) { c.Tracing.Sample = 0.5 },
	"log.level":      func(c *config.Config) { c.Log.Level = "warn" },
	"log.format":     func(c *config.Config) { c.Log.Format = "json" },
	"pools.POOL.api_key": pools(
		func(p *config.Pool) { p.APIKey = config.Secret{Value: "another"} },
	),
	"pools.POOL.index":           pools(func(p *config.Pool) { p.Index = config.IndexApproximate }),
	"pools.POOL.block_size":      pools(func(p *config.Pool) { p.BlockSize = 32 }),
	"pools.POOL.blocks":          pools(func(p *config.Pool) { p.Blocks = 5000 }),
	"pools.POOL.adapter_folders": pools(func(p *config.Pool) { p.AdapterFolders = []string{"/mnt/adapters"} }),
	"pools.POOL.replicas.name": replicas(
		func(r *config.Replica, name string) { r.Name = "engine-" + name },
	),
	"pools.POOL.replicas.drain": pools(func(p *config.Pool) {
		p.Replicas = slices.Clone(p.Replicas)
		p.Replicas[0].Drain = true
	}),
	"pools.POOL.replicas.p2p_port": replicas(
		func(r *config.Replica, _ string) { r.PullPort = 5711 },
	),
	"pools.POOL.replicas.bootstrap_port": replicas(
		func(r *config.Replica, _ string) { r.BootstrapPort = 8997 },
	),
	"pools.POOL.replicas.gateway_port": replicas(
		func(r *config.Replica, _ string) { r.GatewayPort = 9000 },
	),
	"pools.POOL.replicas.model":      replicas(func(r *config.Replica, _ string) { r.Model = "sim" }),
	"pools.POOL.replicas.revision":   replicas(func(r *config.Replica, _ string) { r.Revision = "r1" }),
	"pools.POOL.replicas.place.host": replicas(func(r *config.Replica, _ string) { r.Place.Host = "h1" }),
	"pools.POOL.replicas.place.rack": replicas(func(r *config.Replica, _ string) { r.Place.Rack = "r1" }),
	"pools.POOL.replicas.place.zone": replicas(func(r *config.Replica, _ string) { r.Place.Zone = "z1" }),
	"pools.POOL.replicas.events.topic": replicas(
		func(r *config.Replica, name string) { r.Events = config.Events{Endpoint: at(name, 1), Topic: "kv"} },
	),
	"pools.POOL.replicas.events.endpoint": replicas(func(r *config.Replica, name string) {
		r.Events = config.Events{Endpoint: at(name, 1)}
	}),
	"pools.POOL.replicas.events.replay": replicas(func(r *config.Replica, name string) {
		r.Events = config.Events{Endpoint: at(name, 1), Replay: at(name, 2)}
	}),
	"experimental.scoring.units": func(c *config.Config) { c.Experimental.Scoring.Units = config.Raw },
	"experimental.policy":        func(c *config.Config) { c.Experimental.Policy = config.PolicyTwoState },
}

// elsewhere are the fields that this test cannot change, because they need files or replace a server, each
// with the test that changes it.
var elsewhere = map[string]string{
	"tls.cert":                            "TestFrontCertificateIsReplaced",
	"tls.key":                             "TestFrontCertificateIsReplaced",
	"pools.POOL.tls.ca":                   "TestRotatedAuthorityIsUsed",
	"pools.POOL.tls.cert":                 "TestSameTLS",
	"pools.POOL.tls.key":                  "TestSameTLS",
	"pools.POOL.tls.server_name":          "TestSameTLS",
	"pools.POOL.tls.insecure_skip_verify": "TestSameTLS",
	"pools.POOL.replicas.url":             "TestMovedReplica",
	"pools.POOL.replicas.shared":          "TestSharedEngines",
	"answer_cache.valkey":                 "TestSharedStoreIsReloaded",
	"routers.valkey":                      "TestAnotherServerIsMetAt",
	"discovery.dns":                       "TestMembersFoundByDNS",
	"discovery.kubernetes":                "TestMembersFoundInKubernetes",
	"connector.type":                      "there is one",
	"decisions.file":                      "TestDecisionsInAFile",
	"usage.file":                          "TestUsageIsWritten",
	"state.file":                          "TestWhatWasLearnedOutlivesTheRouter",
}

// reindexing are the fields whose change empties an index.
var reindexing = []string{"pools.POOL.index", "tokenizer.chunk_bytes", "tokenizer.chars_per_token"}

func pools(change func(*config.Pool)) func(*config.Config) {
	return func(c *config.Config) { change(&c.Pools.Prefill); change(&c.Pools.Decode) }
}

func replicas(change func(r *config.Replica, name string)) func(*config.Config) {
	return pools(func(p *config.Pool) {
		p.Replicas = slices.Clone(p.Replicas)
		for i := range p.Replicas {
			name, _, _ := strings.Cut(p.Replicas[i].ID(), ".")
			change(&p.Replicas[i], name)
		}
	})
}

func at(name string, port int) string { return fmt.Sprintf("tcp://%s.internal:560%d", name, port) }

// fields returns all fields of the configuration with a function that changes each. The fields of both
// pools have the path POOL.
func fields(t *testing.T) map[string]func(*config.Config) {
	all := map[string]func(*config.Config){}
	var walk func(path string, at reflect.Type, values func(*config.Config) []reflect.Value)
	walk = func(path string, at reflect.Type, values func(*config.Config) []reflect.Value) {
		for _, f := range reflect.VisibleFields(at) {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if key == "" || key == "-" {
				continue
			}
			field, typ := strings.TrimPrefix(path+"."+key, "."), f.Type
			inner := func(c *config.Config) (vs []reflect.Value) {
				for _, v := range values(c) {
					vs = append(vs, v.FieldByIndex(f.Index))
				}
				return vs
			}
			switch {
			case typ == reflect.TypeFor[config.Pools]():
				walk("pools.POOL", reflect.TypeFor[config.Pool](), func(c *config.Config) []reflect.Value {
					return []reflect.Value{reflect.ValueOf(&c.Pools.Prefill).Elem(), reflect.ValueOf(&c.Pools.Decode).Elem()}
				})
			case typ == reflect.TypeFor[[]config.Replica]():
				walk(field, typ.Elem(), nil) // all fields of replicas are in changes
			case elsewhere[field] != "":
				all[field] = nil
			case changes[field] != nil:
				all[field] = changes[field]
			case typ.Kind() == reflect.Struct && typ != reflect.TypeFor[config.Secret]() &&
				typ != reflect.TypeFor[config.Alpha]():
				walk(field, typ, inner)
			case values == nil || !double(inner(config.Default())):
				t.Errorf("no test changes %s: add it to changes or to elsewhere", field)
			default:
				all[field] = func(c *config.Config) { double(inner(c)) }
			}
		}
	}
	walk("", reflect.TypeFor[config.Config](),
		func(c *config.Config) []reflect.Value { return []reflect.Value{reflect.ValueOf(c).Elem()} })
	return all
}

// double doubles numbers and turns switches. It returns false for values of other types.
func double(vs []reflect.Value) bool {
	for _, v := range vs {
		switch {
		case v.CanInt():
			v.SetInt(max(1, v.Int()*2))
		case v.CanFloat():
			v.SetFloat(max(0.01, v.Float()*2))
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			return false
		}
	}
	return true
}

// A reload changes any field of the configuration under load, while the engines' metrics are slow. No
// client gets an error, no remaining replica loses its known blocks, and no replica is probed again.
func TestReloadOfEveryField(t *testing.T) {
	all := fields(t)
	for field := range maps.Keys(elsewhere) {
		if _, ok := all[field]; !ok {
			t.Errorf("elsewhere names %s, which is not a field", field)
		}
	}
	for field := range maps.Keys(changes) {
		if _, ok := all[field]; !ok {
			t.Errorf("changes names %s, which is not a field", field)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if change := all[field]; change != nil {
			t.Run(field, func(t *testing.T) { reloadUnderLoad(t, field, change) })
		}
	}
}

func reloadUnderLoad(t *testing.T, field string, change func(*config.Config)) {
	in(t, setup{config: func(c *config.Config) { c.Timeouts = config.Default().Timeouts }}, func(w *world) {
		cfg := *w.cfg
		change(&cfg)
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(cfg, *w.cfg) {
			t.Fatal("the configuration did not change")
		}
		stop := w.load(2)
		time.Sleep(2 * time.Second)
		for _, e := range append(slices.Clone(w.p), w.d...) {
			fault(enginesim.Fault{Kind: "slow_metrics", For: 500 * time.Millisecond})(w, e)
		}
		known, watched := w.known(), w.o.fleet.Watchers()
		if slices.Contains(known, 0) {
			t.Fatalf("known blocks of the replicas: %d; this test needs some for each", known)
		}
		for _, c := range []*config.Config{&cfg, w.cfg} {
			if err := w.o.Apply(c); err != nil {
				t.Fatal(err)
			}
			for i, n := range w.known() {
				if n < known[i] && !slices.Contains(reindexing, field) {
					t.Errorf("%d blocks of replica %d are known, want at least %d as before the reload", n, i, known[i])
				}
			}
			time.Sleep(2 * time.Second)
		}
		stop()
		if now := w.o.fleet.Watchers(); !slices.Equal(now, watched) {
			t.Error("the watchers were replaced")
		}
		if n := w.count("tandem_decode_distrusted_total", ""); n != 0 {
			t.Errorf("engines were distrusted %d times, want 0", n)
		}
	})
}

// A reload changes how engines are watched. The new values apply at once to the replicas that stay.
func TestReloadChangesHowEnginesAreWatched(t *testing.T) {
	way := &blocked{addr: "d0.internal:8000"}
	patient := func(c *config.Config) {
		c.Timeouts = config.Default().Timeouts
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = 2*time.Second, 2*time.Second
		c.Health.Failures = 1000
		c.Timeouts.Probe, c.Timeouts.Connect = time.Minute, time.Minute
	}
	dead := enginesim.Fault{Kind: "fail", Path: "/metrics", Status: 500, Count: -1}
	for _, tt := range []struct {
		field  string
		change func(c *config.Config)
		happen func(w *world) // makes the engine unusable under the new value only
	}{
		{
			"health.failures", func(c *config.Config) { c.Health.Failures = 2 },
			func(w *world) { fault(dead)(w, w.d[0]) },
		},
		{
			"timeouts.probe", func(c *config.Config) { c.Timeouts.Probe, c.Health.Failures = time.Second, 1 },
			func(w *world) { fault(enginesim.Fault{Kind: "freeze", For: time.Minute})(w, w.d[0]) },
		},
		{
			"timeouts.connect", func(c *config.Config) { c.Timeouts.Connect = time.Second },
			func(w *world) { way.fails.Store(new(dropped)); w.net.Cut(w.d[0].addr) },
		},
	} {
		for _, reloaded := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reloaded %t", tt.field, reloaded), func(t *testing.T) {
				in(t, setup{decode: 2, config: patient, options: way.between}, func(w *world) {
					if reloaded {
						cfg := *w.cfg
						tt.change(&cfg)
						w.apply(&cfg)
						time.Sleep(5 * time.Second) // the next probe begins with the new value
					}
					tt.happen(w)
					time.Sleep(20 * time.Second)
					if up := w.count("tandem_replica_up", w.d[0].addr) == 1; up == reloaded {
						t.Errorf("up: %t", up)
					}
					way.fails.Store(nil)
				})
			})
		}
	}
}

// The same for the poll interval.
func TestReloadOfPollInterval(t *testing.T) {
	in(t, setup{}, func(w *world) {
		asked := func() int {
			before := w.d[0].Calls()["/metrics"]
			time.Sleep(time.Minute)
			return w.d[0].Calls()["/metrics"] - before
		}
		cfg := *w.cfg
		cfg.Pools.Decode.PollInterval = time.Second
		seldom := asked()
		w.apply(&cfg)
		if often := asked(); seldom > 20 || often < 40 {
			t.Errorf("polled %d times a minute, and %d times with a quarter of the interval", seldom, often)
		}
	})
}

// load keeps this many clients busy until stop. Every request has to succeed.
func (w *world) load(clients int) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := i; ; n += clients {
				select {
				case <-end:
					return
				default:
				}
				p := guardedPrompt(idPrompt(n, 100), fmt.Sprintf(`,"stream":%t`, n%2 == 0))
				p.header = http.Header{"Authorization": {"Bearer one"}}
				if got := w.ask(p); got.status != 200 || got.fail.Message != "" || got.err != nil {
					w.t.Errorf("status %d, %v: %s", got.status, got.err, got.raw)
				}
			}
		})
	}
	return func() {
		close(end)
		wg.Wait()
	}
}

// known returns the number of blocks in the index for each replica, prefill first.
func (w *world) known() (blocks []int) {
	now := time.Now()
	for _, m := range w.o.prefill.Status(now) {
		blocks = append(blocks, m.Blocks)
	}
	for _, m := range w.o.decode.Status(now) {
		blocks = append(blocks, m.Blocks)
	}
	return blocks
}
