package orchestrator

import (
	"cmp"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/keys"
)

// Every secret that the configuration allows can be presented. If the two limits differ, this line does not
// compile.
var _ [config.LongestSecret]struct{} = [keys.LongestSecret]struct{}{}

// keyTable returns the table of the client keys of cfg. Keys with limits get their accounts from all.
func keyTable(cfg *config.Config, all *keys.Accounts) *keys.Table {
	if !cfg.WantsKeys() {
		return keys.Everybody()
	}
	named := cfg.ClientKeys()
	list, weights := make([]keys.Key, len(named)), weightsOf(named, len(cfg.Classes) > 0)
	flows := map[string]*keys.Flows{}
	for tenant := range weights {
		flows[tenant] = &keys.Flows{}
	}
	for i, k := range named {
		tenant := k.TenantName()
		list[i] = keys.Key{
			Name: k.Name, Lasting: k.Name, Tenant: tenant, Group: tenantOf(tenant), Hash: k.Hash(), Models: k.Models,
			Weight: weights[tenant], Class: k.Class, Classes: k.Classes, KVHints: k.KVHints,
			Flows:  flows[tenant],
			Limits: keys.Limits{Requests: k.Requests, Tokens: k.Tokens, AtOnce: k.AtOnce, KV: k.KV},
		}
	}
	for i := range cfg.APIKeys { // the names are positions in the list
		list[i].Lasting = list[i].Tenant
	}
	if secret := cfg.Isolation.Salt; secret.IsSet() {
		for i := range list {
			list[i].Salt = keys.TenantSalt(secret.Reveal(), list[i].Tenant)
		}
	}
	return keys.NewTable(list, all)
}

// keyName returns the name of the client's key. The name is "" if the router has no keys, or no key with the
// secret that the client showed.
func (o *origin) keyName() string {
	if o.key == nil {
		return ""
	}
	return o.key.Name
}

// readers names the clients that may share a stored answer: all clients of one tenant. The name is "" if the
// router has no keys.
func (o *origin) readers() string {
	if o.key == nil {
		return ""
	}
	return "tenant " + o.key.Tenant
}

// weightsOf returns the weight of each tenant; nil if shares are not kept. keeps says that shares are kept
// even without a weight.
func weightsOf(named []config.Key, keeps bool) map[string]float64 {
	weights := map[string]float64{}
	for _, k := range named {
		tenant := k.TenantName()
		weights[tenant] = max(weights[tenant], float64(k.Weight))
		keeps = keeps || k.Weight > 0
	}
	if !keeps {
		return nil
	}
	for tenant, w := range weights {
		weights[tenant] = cmp.Or(w, config.DefaultWeight)
	}
	return weights
}
