package orchestrator

import (
	"context"
	"net/http"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/internal/replica"
)

// outgoing is a leg that will be sent.
type outgoing struct {
	body   *openai.Edit
	path   string
	id     string         // X-Request-Id; a connector may need another
	header []engine.Field // further fields that a connector needs
	load   bool           // ask for the engine's load with the answer
	usage  bool           // asks for usage that the client does not get
	last   func() error   // called just before the first byte; an error stops the leg; nil allows it

	leg    connector.Leg   // as a connector edits it
	sends  engine.Request  // as it is sent
	fields [5]engine.Field // memory of its header
}

// edited returns o as edited by a connector.
func (o *outgoing) edited(attempt string) *connector.Leg {
	o.leg = connector.Leg{Body: o.body, RequestID: attempt, SetHeader: o.set}
	return &o.leg
}

func (o *outgoing) set(key, value string) {
	if key == "X-Request-Id" {
		o.id = value
		return
	}
	o.header = append(o.header, engine.Field{Key: key, Value: value})
}

// made returns the request of the leg for an engine.
func (o *outgoing) made(ctx context.Context, j *job) *engine.Request {
	r := &o.sends
	r.Method = http.MethodPost
	r.Path = o.path
	r.Last = o.last
	r.Loads = o.leg.Loads
	r.Body = o.body.Append(borrow(o.body.Len()))
	r.ID = o.id
	r.Header = append(o.fields[:0], o.header...)
	if o.load {
		r.Header = append(r.Header, engine.Field{Key: "Endpoint-Load-Metrics-Format", Value: "TEXT"})
	}
	r.Header = j.ofClient(r.Header)
	return j.spans.Propagate(ctx, r, j.r.Header)
}

// unasked returns the state for the usage for which the answering leg asks.
func (o *outgoing) unasked(at *replica.Facts) unaskedUsage {
	u := unaskedUsage{on: o.usage}
	if o.usage && at.Fingerprint != "" {
		u.name = rawjson.AppendString(nil, at.Fingerprint)
	}
	return u
}

// ofClient appends the fields of the client's header that engines get.
func (o *origin) ofClient(fields []engine.Field) []engine.Field {
	if o.session.id != "" {
		fields = append(fields, engine.Field{Key: sessionHeader, Value: o.session.id})
	}
	return passPriority(fields, o.key, o.r.Header)
}

// passPriority appends the client's X-Vllm-Priority to fields, if its key may set a priority. An engine
// ignores a value that is no integer, and its API process fails on an integer of more than 64 bits. So only
// integers of 64 bits are passed on.
func passPriority(fields []engine.Field, k *keys.Key, client http.Header) []engine.Field {
	if _, ok := priorityIn(client); !ok || !prioritizes(k) {
		return fields
	}
	return append(fields, engine.Field{Key: priorityHeader, Value: client.Get(priorityHeader)})
}
