package orchestrator

import (
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// body reads the request's body within the limits of size and time.
func (q *request) body() ([]byte, *failure) {
	limit := int64(q.cfg.Limits.BodyBytes)
	if q.r.ContentLength > limit {
		return nil, q.tooLarge(limit)
	}
	// Not every connection of a test has deadlines.
	_ = q.w.rc.SetReadDeadline(time.Now().Add(q.cfg.Timeouts.ReadBody))
	body, err := readBody(q.r.Body, q.r.ContentLength, limit+1)
	_ = q.w.rc.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return nil, refuse(kindBodyUnread, site{phase: phaseAdmit, err: err})
	case int64(len(body)) > limit:
		return nil, q.tooLarge(limit)
	case q.key != nil && q.key.Salt != "" && !slices.Contains(asking, q.path):
		return fleet.Salted(body, q.key.Salt), nil // the salt of a client also ends with that of its tenant
	}
	return body, nil
}

// firstRead is the memory that a body gets because of its announced length.
const firstRead = 64 << 10

// readBody reads the announced number of bytes, or at most most bytes if no length was announced (-1). Memory
// grows with the bytes that arrive: a client that announces much and sends little gets little.
func readBody(r io.Reader, announced, most int64) ([]byte, error) {
	if announced >= 0 {
		most = announced
	}
	body := make([]byte, 0, min(most, firstRead))
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(2*int64(cap(body)), most)), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF && int64(len(body)) < announced:
			return body, io.ErrUnexpectedEOF
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, err
		}
	}
	return body, nil
}

func (q *request) tooLarge(limit int64) *failure {
	return refuse(kindBodyTooLarge, site{phase: phaseAdmit, words: "The request body is larger than " +
		strconv.FormatInt(limit, 10) + " bytes, the limit of this router (limits.body_bytes)."})
}

// parse reads the body of a request that can be split.
func (q *request) parse(kind openai.Kind) (*openai.Request, *failure) {
	raw, f := q.body()
	if f != nil {
		return nil, f
	}
	req, f := q.understood(kind, raw, q.limits())
	if f != nil {
		return nil, f
	}
	classify(q, req.Model, req)
	return req, reserve(q, func() keys.Ask { return askOf(q, req) })
}

// understood parses a body, and returns the request with the name of the model that serves it. If the client
// named an alias, the body gets the model's name instead.
func (q *request) understood(kind openai.Kind, raw []byte, limits openai.Limits) (*openai.Request, *failure) {
	raw, f := q.forAlias(raw)
	if f != nil {
		return nil, f
	}
	req, err := openai.Parse(kind, raw, limits)
	if err != nil {
		return nil, badRequest(err)
	}
	if q.alias == "" {
		req.Model, f = q.modelOr(req.Model)
	}
	return req, f
}

// forAlias returns the body with the name of a model instead of an alias.
func (q *request) forAlias(raw []byte) ([]byte, *failure) {
	if len(q.aliases) == 0 {
		return raw, nil
	}
	named := openai.Peek(raw).Model
	if q.aliases[named] == nil {
		return raw, nil
	}
	model, f := q.modelOr(named)
	if f != nil {
		return nil, f
	}
	return openai.WithModel(raw, model), nil
}

func (q *request) limits() openai.Limits {
	l := q.cfg.Limits
	return openai.Limits{
		PromptTokens: l.MaxPromptTokens, Prompts: l.BatchPrompts, Samples: l.Samples,
		KVHints: q.key != nil && q.key.KVHints, NoPriority: !prioritizes(q.key),
	}
}

// longestModel is how many bytes the name of a model may have, because records and log lines show what
// clients named.
const longestModel = 1024

// modelOr returns the model of a request. An alias leads to a model. If the request names no model, this is
// the only model of the decode replicas, as an engine answers such a request with its own model. If there are
// several models, no choice would be right. The client's key must allow the model that the client named.
func (q *request) modelOr(named string) (model string, f *failure) {
	switch model = named; {
	case named == "":
		model, f = q.onlyModel()
	case len(named) > longestModel:
		return "", refuse(kindUnknownModel, site{
			phase: phaseAdmit, words: "The model does not exist. Its name is longer than that of any model.",
		})
	}
	if f == nil && !q.key.Allows(model) {
		return "", denied(model)
	}
	if f == nil {
		model = behindAlias(q, model)
	}
	return model, f
}

// onlyModel returns the only model that the decode replicas serve; "" if none is known.
func (q *request) onlyModel() (string, *failure) {
	only := ""
	for _, r := range q.fleet.Endpoints() {
		switch own := r.Member.Facts.Model; {
		case r.Member.Role != replica.Decode || own == only:
		case only != "":
			return "",
				badRequest(&openai.BadRequest{Message: "Name a model: this router serves several.", Param: "model"})
		default:
			only = own
		}
	}
	return only, nil
}

// readPassthrough reads and cleans a body that is not split.
func (q *request) readPassthrough() (*passthrough, *failure) {
	if q.r.Method == http.MethodGet {
		return &passthrough{again: true}, nil
	}
	raw, f := q.body()
	if f != nil {
		return nil, f
	}
	p := &passthrough{body: raw, contentType: q.r.Header.Get("Content-Type")}
	if media, params, err := mime.ParseMediaType(p.contentType); err == nil &&
		strings.HasPrefix(media, "multipart/") {
		return p, readForm(q, p, media, params["boundary"])
	}
	p.contentType = "application/json" // an engine reads every other body as JSON, for any content type
	if len(raw) == 0 {
		return p, reserve(q, func() keys.Ask { return keys.Ask{} })
	}
	clean, err := openai.Sanitize(raw, q.limits())
	if err != nil {
		return nil, badRequest(err)
	}
	p.body = clean
	seen := openai.Peek(clean)
	p.model = seen.Model
	p.stream = seen.Stream
	p.samples = seen.Samples
	if most := q.cfg.Limits.Samples; seen.Samples > most {
		return nil, badRequest(&openai.BadRequest{Message: openai.TooManySamples("n", most), Param: "n"})
	}
	if p.model, f = q.modelOr(p.model); f != nil {
		return nil, f
	}
	classify(q, p.model, nil)
	if q.alias != "" {
		p.body = openai.WithModel(p.body, p.model)
	}
	return p, reserve(q, func() keys.Ask { return askOfPassed(q, p) })
}

// readForm checks a form, and reads its model. A charset in the content type could hide the model's name from
// the router, because vLLM's server reads a form's values in this charset, even in UTF-7. So the engine gets
// the content type without a charset. A key that may not use every model may only send forms in which every
// reader finds the same model.
func readForm(q *request, p *passthrough, media, boundary string) *failure {
	if hidesTransfer(p.body, boundary) {
		return badRequest(&openai.BadRequest{Message: "Transfer parameters are not taken from clients."})
	}
	if !q.key.AllowsAll() && !usualForm(p.body, boundary) {
		return badRequest(&openai.BadRequest{
			Message: "The form is not written in the usual way, so its model cannot be read for sure.", Param: "model",
		})
	}
	var f *failure
	if p.model, f = q.modelOr(modelInForm(p.body, boundary)); f != nil {
		return f
	}
	classify(q, p.model, nil)
	if q.alias != "" {
		body, ok := formFor(p.body, boundary, p.model)
		if !ok {
			return badRequest(&openai.BadRequest{
				Message: "The form is not written in the usual way, so its alias cannot be replaced: name the model " +
					"itself, `" + p.model + "`.", Param: "model",
			})
		}
		p.body = body
	}
	p.contentType = mime.FormatMediaType(media, map[string]string{"boundary": boundary})
	return reserve(q, func() keys.Ask { return askOfPassed(q, p) })
}

// passthrough is a request that goes whole to one replica, unchanged except for transfer parameters. These
// never reach an engine.
type passthrough struct {
	body        []byte
	contentType string
	model       string
	stream      bool
	samples     int  // answers that it asks for
	encodes     bool // the request asks for vectors or scores
	again       bool // an engine may be asked twice: the request makes or changes nothing
	acts        bool // an engine may do more for the request than compute an answer
	unbooked    bool // the request has no lease, since only one engine can serve it
	resent      bool // sent once more, because a kept connection was too old
}
