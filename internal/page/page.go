// Package page is the live page of the admin listener: the state of a router, drawn in a browser and kept up
// to date by server-sent events. The code that mounts the page supplies the state.
package page

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"sync"
	"time"
)

//go:embed static
var static embed.FS

// Every is the time between two updates of an open page. All pages share one snapshot.
const Every = time.Second

// Page serves the files of the page and its stream of snapshots.
//
// Safe for concurrent use. While no page is open it costs nothing: it starts no goroutine and asks for no
// snapshot.
type Page struct {
	look  func() *Live // the present snapshot
	files http.Handler

	mu   sync.Mutex // guards the following, and look
	made time.Time  // when last was, zero before
	last []byte     // an event
}

// New makes a page of the snapshots that look returns. look is called at most once in [Every], from one
// goroutine at a time.
func New(look func() *Live) *Page {
	files, err := fs.Sub(static, "static")
	if err != nil { // the name is right
		panic(err)
	}
	return &Page{look: look, files: http.FileServerFS(files)}
}

// Files are the paths of the page's files. They say nothing of the router: no token is needed for them.
var Files = []string{"/", "/page.css", "/page.js", "/icon.svg"}

// policy lets the page use its own files alone. It shows names, models and causes, and runs no code from
// them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " +
	"'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the files of the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // another release has another page
	p.files.ServeHTTP(w, r)
}

// Live streams snapshots until the reader leaves or is too slow to take one in ten times [Every].
func (p *Page) Live(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	to := http.NewResponseController(w)
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		event := p.event(time.Now())
		_ = to.SetWriteDeadline(time.Now().Add(10 * Every)) // not every test transport has deadlines
		if _, err := w.Write(event); err != nil {
			return
		}
		if err := to.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// event is the newest snapshot, made now unless another page has it already.
func (p *Page) event(now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && now.Sub(p.made) < Every/2 {
		return p.last
	}
	data, err := json.Marshal(p.look())
	if err != nil { // a number is not finite
		data, _ = json.Marshal(map[string]string{"error": err.Error()}) // which JSON can say
	}
	event := make([]byte, 0, len(data)+8)
	event = append(append(append(event, "data: "...), data...), "\n\n"...)
	p.made, p.last = now, event
	return event
}
