package fleet

import (
	"slices"
	"sync"
	"time"
)

// outage is why a server is not up, and which of the reasons are in the log. Safe for concurrent use.
type outage struct {
	mu     sync.Mutex // guards the following
	reason string     // why the server is not up, "" while it is
	// The newest reason in the log, and when it was logged.
	reasonLogged string
	reasonAt     time.Time
	said         []string // all reasons logged since the server was up
}

// outageNews says what is new about an outage.
type outageNews struct {
	first  bool // the server was asked in vain for the first time
	begins bool // the outage begins
	other  bool // its reason is another one, which the log should have
}

// NotProbed is the reason of a replica that has not been asked yet.
const NotProbed = "not probed yet"

const (
	// reasonEvery is the least time between two log lines that repeat why a server is not usable. An engine
	// that starts, or a path that is cut, refuses, resets and times out in turn.
	reasonEvery = time.Minute
	// mostReasons is how many reasons of one outage are logged at once, when first seen.
	mostReasons = 8
)

// note notes at now why the server is not up. wasUp says whether it was up until now.
func (o *outage) note(reason string, wasUp bool, now time.Time) (news outageNews) {
	o.mu.Lock()
	defer o.mu.Unlock()
	news.first = o.reason == NotProbed
	news.begins = wasUp || o.reason == "" || o.reasonAt.IsZero()
	if news.begins {
		o.said = nil
	}
	unsaid := !slices.Contains(o.said, reason) && len(o.said) < mostReasons
	again := o.reasonLogged != reason && now.Sub(o.reasonAt) >= reasonEvery
	news.other = !news.begins && (unsaid || again)
	if o.reason = reason; news.begins || news.other {
		o.reasonLogged, o.reasonAt = reason, now
		o.said = append(o.said[:min(len(o.said), mostReasons-1)], reason)
	}
	return news
}

// end notes that the server is up.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reason = ""
}

// why says why the server is not up, "" while it is.
func (o *outage) why() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reason
}
