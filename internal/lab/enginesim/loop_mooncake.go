package enginesim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// mooncakeSource is one rank of a prefill engine, as its bootstrap server tells (mooncake_utils.py).
type mooncakeSource struct {
	EngineID string                       `json:"engine_id"`
	Workers  map[string]map[string]string `json:"worker_addr"` // by tensor-parallel and pipeline rank
}

// startBootstrap starts the server that tells where the ranks are. A decode engine has none.
func (s *Server) startBootstrap() error {
	if !s.o.Core.Mooncake || s.o.Core.Role == core.Consumer {
		return nil
	}
	usual := net.JoinHostPort(cmp.Or(s.o.Core.Host, "127.0.0.1"), "8998")
	ln, err := s.o.Listen("tcp", cmp.Or(s.o.Bootstrap, usual))
	if err != nil {
		return fmt.Errorf("bootstrap server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, r *http.Request) {
		s.waitEngineFrozen(r.Context().Done())
		all := map[string]mooncakeSource{}
		for i, rank := range s.cores.ranks {
			addr := "tcp://" + net.JoinHostPort(rank.cfg.Host, strconv.Itoa(rank.cfg.Port))
			all[strconv.Itoa(i)] = mooncakeSource{s.EngineID(i), map[string]map[string]string{"0": {"0": addr}}}
		}
		if s.down() { // the process is not there
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(all) // the client has left
	})
	s.cores.bootstrap = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.cores.bootstrap.Addr = ln.Addr().String()
	s.life.wg.Go(func() { _ = s.cores.bootstrap.Serve(ln) }) // ends with Close
	return nil
}

// BootstrapURL is the base of the bootstrap server, "" without one.
func (s *Server) BootstrapURL() string {
	if s.cores.bootstrap == nil {
		return ""
	}
	return "http://" + s.cores.bootstrap.Addr
}

// down reports whether the process is dead, or restarts.
func (s *Server) down() bool {
	s.listening.mu.Lock()
	defer s.listening.mu.Unlock()
	return s.listening.refused || s.listening.dead != nil
}

// askSource asks the prefill side for the blocks that a request waits for. Where the engine is known, nothing
// that goes wrong on the way is noticed: the request waits for its time.
func (r *rank) askSource(ctx context.Context, o core.Order) {
	to, err := r.srv.cores.peers.source(ctx, r.srv.o.Dial, o.Bootstrap, o.Peer.EngineID)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.Loaded(r.now(), o.RequestID, nil, err)
		r.poke()
		return
	}
	to.Ranks = r.cfg.TensorParallel
	o.Peer = to
	r.mu.Lock()
	from := core.Peer{
		EngineID: r.core.EngineID(), Host: r.cfg.Host, Port: r.cfg.Port, Ranks: r.cfg.TensorParallel,
	}
	r.mu.Unlock()
	_ = r.tell(ctx, &o, opAsk,
		core.Registration{ID: o.RequestID, From: from, Blocks: o.Blocks, Transfer: o.TransferID})
}

// refuse tells the decode side that nothing will be written.
func (r *rank) refuse(ctx context.Context, o core.Order) {
	_ = r.tell(ctx, &o, opRefuse, written{ID: o.RemoteIDs[0], Why: o.Why.Error()}) // D's own time ends, too
}

// source finds an engine, once for each: by its bootstrap server.
func (ps *peers) source(
	ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), bootstrap, engine string,
) (core.Peer, error) {
	ps.mu.Lock()
	to, known := ps.sources[engine]
	ps.mu.Unlock()
	if known {
		return to, nil
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	var err error
	for range 3 {
		var all map[string]mooncakeSource
		if all, err = query(ctx, transport, bootstrap); err == nil {
			ps.mu.Lock()
			defer ps.mu.Unlock()
			for _, s := range all {
				ps.sources[s.EngineID] = peerAt(s.EngineID, s.Workers["0"]["0"])
			}
			if to, known = ps.sources[engine]; known {
				return to, nil
			}
			return to, errors.New("remote engine_id " + engine + " not found from bootstrap server " + bootstrap)
		}
		sleep(ctx, 100*time.Millisecond)
	}
	return to, err
}

func peerAt(engine, worker string) core.Peer {
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(worker, "tcp://"))
	n, _ := strconv.Atoi(port)
	return core.Peer{EngineID: engine, Host: host, Port: n}
}

func query(
	ctx context.Context, t http.RoundTripper, bootstrap string,
) (all map[string]mooncakeSource, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // VLLM_MOONCAKE_CONNECTOR_TIMEOUT
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, bootstrap+"/query", nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return all, json.NewDecoder(resp.Body).Decode(&all)
}
