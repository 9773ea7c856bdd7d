package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// busy sends new prompts to a server from several clients at once. Each prompt makes the server announce
// blocks. busy returns after the given number of answers, and its clients continue until the test ends.
func busy(t *testing.T, s *enginesim.Server, answered int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	client := &http.Client{Transport: transport}
	left, enough := answered, make(chan struct{})
	var mu sync.Mutex // guards left
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := one(ctx, client, s.URL()); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				if left--; left == 0 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		transport.CloseIdleConnections()
	})
	<-enough
}

// one sends a prompt of one block.
func one(ctx context.Context, client *http.Client, url string) error {
	ids := make([]string, 17)
	for i := range ids {
		ids[i] = fmt.Sprint(10 + rand.IntN(90))
	}
	body := `{"model":"sim","max_tokens":1,"prompt":[` + strings.Join(ids, ",") + `]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// Engines with 10,000 old batches that announce more blocks pass the checks. Their replay is interrupted,
// because an engine's socket keeps a thousand replies and drops the rest. The doctor then asks again from
// the point of the interruption, as a router does.
func TestBusyFleetPasses(t *testing.T) {
	p, d := up(t, sound()), up(t, sound())
	busy(t, p, 10_000)
	busy(t, d, 100)
	r := examine(t, Options{Config: pools([]*enginesim.Server{p}, []*enginesim.Server{d})})
	if r.Count.Failed > 0 {
		t.Errorf("got failed checks %q for a healthy fleet, want none\n%s", bad(r), text(t, r))
	}
	for _, name := range []string{"prefill p0", "decode d0"} {
		for _, id := range []string{"replay-silent", "replay-missing", "events-silent", "hash-domain"} {
			if f := find(t, r, id, name); f.Status != OK {
				t.Errorf("%s of %s: got %+v, want status OK", id, name, f)
			}
		}
	}
}
