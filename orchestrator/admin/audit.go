package admin

import (
	"net/http"

	"github.com/tandem-router/tandem/internal/config"
)

// These are the reasons of a reload for which no client asked.
const (
	ByFile   = "file" // a file has changed
	BySignal = "SIGHUP"
)

// actor is a client that has passed the gate, or the cause of a reload.
type actor struct {
	by     string // the credential of a client; else [ByFile] or [BySignal]
	client string // the address; "" for no client
}

// actor returns the client of r. Call it before the act, because a reload may change the credentials of the
// gate.
func (o *Options) actor(r *http.Request) actor {
	if o.Config().Admin.Token.IsSet() {
		return actor{"admin.token", r.RemoteAddr}
	}
	return actor{"anybody", r.RemoteAddr} // any client that reaches the listener
}

// audit logs an administrative act and its result.
func (o *Options) audit(of actor, act, result string, more ...any) {
	line := []any{"act", act, "by", of.by}
	if of.client != "" {
		line = append(line, "client", of.client)
	}
	line = append(line, "result", result)
	o.Log.Info("administrative act", append(line, more...)...)
}

// audited writes an audit line and then calls h.
func (o *Options) audited(act string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o.audit(o.actor(r), act, "begun", "query", r.URL.RawQuery)
		h(w, r)
	}
}

// reloads calls reload, and writes an audit line. If a good file cannot be put in force, err is the reason
// too.
func (o *Options) reloads(by actor, reload func() error) error {
	before := o.Config()
	err := reload()
	if err == nil {
		_, err = o.Rejected()
	}
	result, changed := "done", []string(nil)
	switch after := o.Config(); {
	case err != nil:
		result = "rejected: " + err.Error()
	case before == after:
		result = "nothing new"
	default:
		for _, c := range config.Diff(before, after) {
			changed = append(changed, c.Field)
		}
		if changed == nil {
			changed = []string{"the content of named files"}
		}
	}
	o.audit(by, "reload", result, "changed", changed)
	return err
}
