package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/replica"
)

// Bootstrap asks the bootstrap server of a prefill engine for the addresses of its ranks, in their order
// (vLLM 0.32, mooncake/mooncake_utils.py). first is the number of the first rank. The server listens on a
// port of its own, without TLS. It may also name ranks of other servers, because an engine has one bootstrap
// server for all its ranks. Of o, only the way to dial counts.
func Bootstrap(
	ctx context.Context, o Options, host string, port, first, ranks int,
) ([]replica.KVAddress, error) {
	base := "http://" + net.JoinHostPort(host, strconv.Itoa(port))
	client, err := New(Options{URL: base, Dial: o.Dial, DialTimeout: o.DialTimeout})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	status, body, err := client.get(ctx, "/query")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, &StatusError{Path: base + "/query", Status: status}
	}
	var said map[int]struct {
		EngineID string `json:"engine_id"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, NotJSON("/query", body, err)
	}
	numbers := slices.Sorted(maps.Keys(said))
	all := make([]replica.KVAddress, ranks)
	for i := range all {
		at := said[first+i]
		if at.EngineID == "" && len(said) == ranks { // numbered from 0 on each server
			at = said[numbers[i]]
		}
		if at.EngineID == "" {
			return nil, fmt.Errorf("%s/query does not name rank %d", base, first+i)
		}
		all[i] = replica.KVAddress{EngineID: at.EngineID, Bootstrap: base}
	}
	return all, nil
}

// Listens returns an error unless each port of host takes a connection. Of o, only the way to dial counts.
func Listens(ctx context.Context, o Options, host string, ports ...int) error {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: o.DialTimeout}).DialContext
	}
	for _, port := range ports {
		c, err := dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}
