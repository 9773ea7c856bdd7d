package admin

import (
	"net/http"

	"github.com/tandem-router/tandem/internal/config"
)

// Why a reload began, where no client asked for it.
const (
	ByFile   = "file" // a file has changed
	BySignal = "SIGHUP"
)

// actor is a client that has passed the gate.
type actor struct {
	by     string // the credential
	client string // the address
}

// actor returns the client of r. Call it before the act: a reload may change what the gate asks for.
func (o *Options) actor(r *http.Request) actor {
	if o.Config().Admin.Token.IsSet() {
		return actor{"admin.token", r.RemoteAddr}
	}
	return actor{"anybody", r.RemoteAddr} // any client that reaches the listener
}

// audit logs an administrative act of a client, and what came of the act.
func (o *Options) audit(of actor, act, result string, more ...any) {
	more = append([]any{"act", act, "by", of.by, "client", of.client, "result", result}, more...)
	o.Log.Info("administrative act", more...)
}

// audited has h served after an audit line.
func (o *Options) audited(act string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o.audit(o.actor(r), act, "begun", "query", r.URL.RawQuery)
		h(w, r)
	}
}

// reloads calls reload, and says what the reload changed. A reload may find a good file that cannot be put in
// force: err is the reason then, too.
func (o *Options) reloads(reload func() error) (result string, changed []string, err error) {
	before := o.Config()
	if err = reload(); err == nil {
		_, err = o.Rejected()
	}
	after := o.Config()
	switch {
	case err != nil:
		return "rejected: " + err.Error(), nil, err
	case before == after:
		return "nothing new", nil, nil
	}
	for _, c := range config.Diff(before, after) {
		changed = append(changed, c.Field)
	}
	if changed == nil {
		changed = []string{"the content of named files"}
	}
	return "done", changed, nil
}
