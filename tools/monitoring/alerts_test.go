//go:build prometheus

package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

// reported is an alert with the fault that causes it, and with the end of the fault.
type reported struct {
	alert      string
	fault, end func(f *fleet)
}

// outages are faults of engines that fail requests. The last is a fault of the router itself.
var outages = []reported{
	{
		"TandemReplicaSlow",
		func(f *fleet) { f.fault(`{"kind":"slow","factor":20}`, f.decode[0]) }, (*fleet).clear,
	},
	{
		"TandemTransferParamsRefused",
		func(f *fleet) { f.fault(`{"kind":"null_params","count":-1}`, f.prefill[0]) }, (*fleet).clear,
	},
	{
		"TandemPairEjected",
		func(f *fleet) { f.fault(`{"kind":"cut_path","from":"127.0.0.1"}`, f.decode[1]) }, (*fleet).clear,
	},
	{
		"TandemReplicaDrained",
		func(f *fleet) { f.order("drain", "d0") },
		func(f *fleet) { f.order("undrain", "d0") },
	},
	{
		"TandemReplicaEjected", // the first replica gets few requests, because it was slow a minute ago
		func(f *fleet) { f.fault(`{"kind":"fail","count":-1}`, f.decode[2]) }, (*fleet).clear,
	},
	{
		"TandemRequestsFail",
		func(f *fleet) { f.fault(`{"kind":"fail","count":-1}`, f.decode...) }, (*fleet).clear,
	},
	{
		"TandemReplicaDown",
		func(f *fleet) { f.fault(`{"kind":"die"}`, f.decode[0]) }, func(*fleet) {},
	},
	{
		"TandemNotReady",
		func(f *fleet) { f.fault(`{"kind":"die"}`, f.decode[1:]...) }, func(*fleet) {},
	},
	{
		"TandemDown",
		func(f *fleet) { _ = f.serve.Process.Kill() }, func(*fleet) {},
	},
}

// unknowns are faults without failing requests: facts about engines are missing, old or contradictory.
var unknowns = []reported{
	{
		"TandemPeerSilent",
		func(f *fleet) { f.configure("routers: {peers: [\"http://127.0.0.1:1\"]}\n") }, reconfigured,
	},
	{
		"TandemDecisionsUnwritten",
		func(f *fleet) { f.configure("decisions: {file: /dev/full}\n") }, reconfigured,
	},
	{
		"TandemConfigRejected",
		func(f *fleet) { f.configure("nonsense: 1\n") }, reconfigured,
	},
	{
		"TandemIndexUnknown", // no engine publishes at this address
		func(f *fleet) {
			f.prefill[1].events = "tcp://127.0.0.1:1"
			f.configure("")
		},
		func(f *fleet) {
			f.prefill[1].events = ""
			f.configure("")
		},
	},
	{
		"TandemReplicaUnpaired",
		func(f *fleet) {
			f.decode = append(f.decode, f.engine("--block-size", "32"))
			f.configure("")
		},
		func(f *fleet) {
			f.decode = f.decode[:3]
			f.configure("")
		},
	},
	{
		"TandemAdapterDiffers",
		func(f *fleet) { f.fault(`{"kind":"swap_adapter","body":"ad","path":"/adapters/ad-2"}`, f.decode[0]) },
		func(f *fleet) { f.fault(`{"kind":"swap_adapter","body":"ad","path":"/adapters/ad"}`, f.decode[0]) },
	},
	{
		"TandemReportsOld",
		func(f *fleet) {
			f.fault(`{"kind":"no_orca"}`, f.decode[2])
			f.fault(`{"kind":"slow_metrics","for":"1m"}`, f.decode[2])
		},
		(*fleet).clear,
	},
}

func reconfigured(f *fleet) { f.configure("") }

// loads are overloads of engines with little room.
var loads = []reported{
	{
		"TandemFirstTokenSlow",
		func(f *fleet) { f.fault(`{"kind":"slow","factor":500}`, f.prefill...) }, (*fleet).clear,
	},
	manyAtOnce(),
	floods(),
	{
		"TandemDecodeDistrusted", // it may continue reads after their leases have ended
		func(f *fleet) { f.fault(`{"kind":"freeze","for":"1m"}`, f.decode[0]) }, (*fleet).clear,
	},
	oftenFail(),
}

// manyAtOnce are more long answers than one of the engines runs at a time. It lacks nothing else.
func manyAtOnce() reported {
	var stop func()
	return reported{
		"TandemReplicaSequencesFull",
		func(f *fleet) {
			f.decode = append(f.decode, f.engine("--max-num-seqs", "8"))
			f.configure("")
			stop = f.long("dora", 64)
		},
		func(f *fleet) {
			stop()
			f.decode = f.decode[:3]
			f.configure("")
		},
	}
}

// floods are prompts that fill every decode engine several times.
func floods() reported {
	var stop func()
	return reported{
		"TandemQueueLong",
		func(f *fleet) { stop = f.flood(40) }, func(*fleet) { stop() },
	}
}

// oftenFail are engines that each answer one user of three, so that none is worse than another. Ejection is
// off. Most requests succeed at the second or third engine, and keep their place in the retry budget until
// their answers end.
func oftenFail() reported {
	var stops []func()
	return reported{
		"TandemRetryBudgetSpent",
		func(f *fleet) {
			f.configure("health: {ejection: {failures: 0}}\n")
			for i, user := range []string{"ann", "bob", "cem"} {
				for j, d := range f.decode {
					if i != j {
						f.fault(fmt.Sprintf(`{"kind":"fail","leg":"decode","body":"\"user\":\"%s\"","count":-1}`, user), d)
					}
				}
				stops = append(stops, f.long(user, 8))
			}
		},
		func(f *fleet) {
			for _, stop := range stops {
				stop()
			}
			f.clear()
			f.configure("")
		},
	}
}

// untold are alerts without a fault here: TandemLeasesLeft needs a bug of the router, and no simulated engine
// publishes events but does not answer replays. deploy/prometheus/rules.test.yml tests both.
var untold = []string{"TandemLeasesLeft", "TandemReplaysUnanswered"}

// Each alert fires after its fault and not before. No alert fires without a fault.
func TestAlertsFireByTheirFaults(t *testing.T) {
	for name, group := range map[string][]reported{"outages": outages, "unknowns": unknowns, "loads": loads} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "--blocks", "700")
			prom := prometheus(t, f.admin)
			f.traffic(8)
			time.Sleep(10 * time.Second)
			if all := firing(t, prom); len(all) > 0 {
				t.Errorf("without a fault these fire: %v", slices.Sorted(maps.Keys(all)))
			}
			for _, r := range group {
				t.Run(r.alert, func(t *testing.T) { r.fires(t, f, prom) })
			}
		})
	}
}

// fires causes the fault and waits for the alert.
func (r *reported) fires(t *testing.T, f *fleet, prom string) {
	t.Helper()
	within(t, time.Minute, r.alert+" is silent", func() bool { return !firing(t, prom)[r.alert] })
	began := time.Now()
	r.fault(f)
	within(t, 90*time.Second, r.alert+" fires", func() bool { return firing(t, prom)[r.alert] })
	t.Logf("after %v", time.Since(began).Round(time.Second))
	r.end(f)
}

// Every alert of the rules has a fault here, or is in untold.
func TestEveryAlertHasItsFault(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		want = append(want, m[1])
	}
	got := slices.Clone(untold)
	for _, r := range slices.Concat(outages, unknowns, loads) {
		got = append(got, r.alert)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("faults of %v\nrules of %v", got, want)
	}
}

// firing lists the alerts that fire now.
func firing(t *testing.T, prom string) map[string]bool {
	t.Helper()
	var got struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	_ = ask(t, prom+"/api/v1/alerts", &got) // a failed request is repeated
	all := map[string]bool{}
	for _, a := range got.Data.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = true
		}
	}
	return all
}
