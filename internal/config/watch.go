package config

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher follows a configuration file and the secrets and certificates that it names. It sees writes in
// place, renames over the file, delete and recreate, and the swap of the ..data link in a Kubernetes
// ConfigMap or Secret; it looks at contents, so a touch is nothing.
//
// A change counts when two looks, one debounce apart, found the same: half-written files are not read.
//
//	event / poll ──> armed ──(debounce)──> look ──same as known──> idle
//	                   ^                     │ other than last look
//	                   └─────────────────────┤
//	                                         └─same as last look──> load, call back
type Watcher struct {
	path     string
	changed  func(asked bool, c *Config, err error)
	debounce time.Duration
	poll     time.Duration
	reloads  chan chan reload
	known    *look // owned by NewWatcher, then Run: the content at the last callback, or at the start
	seen     *look // owned by Run: the last look, if it was another
	blanks   int   // owned by Run: looks since that found a file empty
}

// blankLooks is how many looks may find a file empty that had content, before the empty file counts. A file
// is empty for a moment while a program writes it in place.
const blankLooks = 20

type reload struct {
	changed bool
	err     error
}

// NewWatcher returns a watcher for changes of the present content: make it before [Load], so that no change
// is missed. changed is called from Run's goroutine, never twice at once, with a good configuration or with
// the error of a bad one. asked says that [Watcher.Reload] led to the call. After an error the configuration
// in force should stay.
func NewWatcher(path string, changed func(asked bool, c *Config, err error)) *Watcher {
	w := &Watcher{
		path: path, changed: changed, debounce: 100 * time.Millisecond, poll: 10 * time.Second,
		reloads: make(chan chan reload),
	}
	w.known = w.first()
	return w
}

// first looks at the file and, if it can be parsed, at the files it names.
func (w *Watcher) first() *look {
	l := lookAt(w.path, nil)
	if doc, err := parseAt(w.path, l.data); l.err == nil && err == nil {
		return l.with(doc.config.files())
	}
	return l
}

// Run follows the file until ctx ends, then returns nil. It returns an error only if the system refuses to
// watch at all. Where just a folder cannot be watched, Run polls.
func (w *Watcher) Run(ctx context.Context) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	defer notify.Close()
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	// One look at the start finds changes from before the folders were watched.
	settle := debounce{Timer: time.NewTimer(w.debounce), after: w.debounce, armed: true}
	defer settle.Stop()
	w.follow(notify)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-notify.Events:
			settle.arm()
		case <-notify.Errors: //nolint:errcheck // an overflow: something was missed, so look
			settle.arm()
		case <-poll.C:
			settle.arm()
		case answer := <-w.reloads:
			answer <- w.now()
			w.follow(notify)
		case <-settle.C:
			settle.armed = false
			if w.look() {
				settle.arm()
			}
			w.follow(notify)
		}
	}
}

// debounce is a timer that runs once after the first of many events.
type debounce struct {
	*time.Timer
	after time.Duration
	armed bool // it runs
}

func (d *debounce) arm() {
	if !d.armed {
		d.Reset(d.after)
		d.armed = true
	}
}

// Reload looks at once, without waiting for the file to settle. It reports whether there was anything new,
// and the error that changed was called with; changed has returned before Reload does. Run must be running.
// The error is ctx's when that ends first.
func (w *Watcher) Reload(ctx context.Context) (changed bool, err error) {
	answer := make(chan reload, 1)
	select {
	case w.reloads <- answer:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case r := <-answer:
		return r.changed, r.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// now answers a Reload. A file that stays bad is reported as bad again.
func (w *Watcher) now() reload {
	l := lookAt(w.path, w.known.files)
	if l.sum == w.known.sum {
		return reload{false, w.known.bad}
	}
	w.apply(true, l)
	return reload{true, w.known.bad}
}

// look takes one look and reports whether another one is due.
func (w *Watcher) look() bool {
	l := lookAt(w.path, w.known.files)
	switch {
	case l.sum == w.known.sum:
		w.seen, w.blanks = nil, 0
		return false
	case w.seen == nil || l.sum != w.seen.sum:
		w.seen, w.blanks = l, 0
		return true
	case l.empty > w.known.empty && w.blanks < blankLooks:
		w.blanks++
		return true
	}
	w.apply(false, l)
	return false
}

// apply loads what l saw and calls back. It looks at the files that the new configuration names before it
// reads them. So a change in between is seen at the next look.
func (w *Watcher) apply(asked bool, l *look) {
	c, err := (*Config)(nil), l.err
	if err == nil {
		var doc *document
		if doc, err = parseAt(w.path, l.data); err == nil {
			l = l.with(doc.config.files())
			c, err = doc.resolved()
		}
	}
	l.bad = err
	w.known, w.seen = l, nil
	w.changed(asked, c, err)
}

// follow watches the folders of every file that counts, as they are now: links may have moved. A folder that
// is not there is left to the poll.
func (w *Watcher) follow(notify *fsnotify.Watcher) {
	var folders []string
	for _, f := range append([]string{w.path}, w.known.files...) {
		folders = append(folders, filepath.Dir(f))
		if target, err := filepath.EvalSymlinks(f); err == nil {
			folders = append(folders, filepath.Dir(target))
		}
	}
	for _, old := range notify.WatchList() {
		if !slices.Contains(folders, old) {
			_ = notify.Remove(old)
		}
	}
	for _, folder := range folders {
		_ = notify.Add(folder)
	}
}

// look is what stood in the files at one time.
type look struct {
	path  string
	files []string
	data  []byte
	err   error // of reading path
	bad   error // of the load, where there was one
	empty int   // how many of all files are empty
	sum   [sha256.Size]byte
}

func lookAt(path string, files []string) *look {
	l := &look{path: path}
	l.data, l.err = readFile(path)
	return l.with(files)
}

// with is the same look with other files beside the configuration.
func (l *look) with(files []string) *look {
	n := &look{path: l.path, files: files, data: l.data, err: l.err}
	h := sha256.New()
	put := func(data []byte, err error) {
		if err != nil {
			data = []byte("error: " + err.Error())
		}
		if blank(data) {
			n.empty++
		}
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	put(l.data, l.err)
	for _, f := range files {
		put(readFile(f))
	}
	h.Sum(n.sum[:0])
	return n
}
