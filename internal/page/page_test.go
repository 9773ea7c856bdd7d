package page

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/memnet"
)

// serve runs a page in fake time, with a client of it.
func serve(t *testing.T, p *Page) *http.Client {
	t.Helper()
	mux := http.NewServeMux()
	for _, file := range Files {
		mux.Handle("GET "+file, p)
	}
	mux.HandleFunc("GET /debug/live", p.Live)
	network := &memnet.Net{}
	ln, err := network.Listen("tcp", "admin:80")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: mux}
	go func() { _ = s.Serve(ln) }()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context,
		n, addr string,
	) (net.Conn, error) {
		return network.Dial(ctx, n, addr)
	}}}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		_ = s.Close()
	})
	return c
}

// The files are served with a content policy that lets the page run only its own script.
func TestFilesOfThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, New(func() *Live { return nil }))
		for _, file := range Files {
			resp, err := c.Get("http://admin" + file)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if p := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != 200 ||
				!strings.Contains(p, "default-src 'none'; script-src 'self'") || strings.Contains(p, "unsafe") {
				t.Errorf("%s: %s under %q", file, resp.Status, p)
			}
		}
	})
}

// Ten open pages get a snapshot each second. Each snapshot is made once. Without a page none is made.
func TestSnapshotsAreMadeOnceForAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		c := serve(t, New(func() *Live { return &Live{InFlight: int(made.Add(1))} }))
		time.Sleep(time.Minute)
		if made.Load() != 0 {
			t.Fatalf("%d snapshots were made for nobody", made.Load())
		}
		ctx, leave := context.WithCancel(t.Context())
		var readers []*bufio.Scanner
		for range 10 {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/debug/live", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			readers = append(readers, bufio.NewScanner(resp.Body))
		}
		for second := range 5 {
			for i, r := range readers {
				var got Live
				if !r.Scan() || json.Unmarshal([]byte(strings.TrimPrefix(r.Text(), "data: ")), &got) != nil ||
					got.InFlight != second+1 || !r.Scan() || r.Text() != "" {
					t.Fatalf("page %d gets %q in second %d", i, r.Text(), second)
				}
			}
		}
		leave()
		synctest.Wait()
		before := made.Load()
		time.Sleep(time.Minute)
		if made.Load() != before {
			t.Errorf("%d snapshots were made after the last page had been closed", made.Load()-before)
		}
	})
}

// If a snapshot cannot be written as JSON, the page gets the error instead.
func TestASnapshotThatCannotBeSaid(t *testing.T) {
	p := New(func() *Live { return &Live{Recent: Recent{Seconds: math.NaN()}} })
	if got := string(p.event(time.Now())); !strings.HasPrefix(got, `data: {"error":`) ||
		!strings.HasSuffix(got, "\n\n") {
		t.Errorf("got %q", got)
	}
}
