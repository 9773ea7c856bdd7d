package enginesim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// route is one path of the server.
type route struct {
	methods string // value of the allow header of a 405
	handle  func(*Server, *call)
	admin   bool // a router must never expose the path
	gated   bool // needs --enable-scale-out since 0.21
	since   int  // first minor version; older ones answer 404
}

const jsonType = "application/json"

// routes returns the table of paths. Admin paths without an effect count their calls and answer 200.
//
// Long: one row per path.
func routes() map[string]route {
	table := map[string]route{
		"/v1/completions":             {methods: "POST", handle: (*Server).completions},
		"/v1/chat/completions":        {methods: "POST", handle: (*Server).chat},
		"/v1/responses":               {methods: "POST", handle: (*Server).responses},
		"/v1/messages":                {methods: "POST", handle: (*Server).messages},
		"/v1/messages/count_tokens":   {methods: "POST", handle: (*Server).countTokens},
		"/inference/v1/generate":      {methods: "POST", handle: (*Server).generate, gated: true},
		"/v1/completions/render":      {methods: "POST", handle: (*Server).renderCompletions, gated: true},
		"/v1/chat/completions/render": {methods: "POST", handle: (*Server).renderChat, gated: true},
		"/v1/messages/render": {
			methods: "POST", handle: (*Server).renderMessages, gated: true, since: 21,
		},
		"/v1/responses/render": {
			methods: "POST", handle: (*Server).renderResponses, gated: true, since: 21,
		},
		"/inference/v1/abort_requests": {
			methods: "POST", handle: (*Server).abortRequests, gated: true, admin: true,
		},
		"/tokenize":                      {methods: "POST", handle: (*Server).tokenize},
		"/detokenize":                    {methods: "POST", handle: (*Server).detokenize},
		"/v1/models":                     {methods: "GET", handle: (*Server).models},
		"/v1/load_lora_adapter":          {methods: "POST", handle: (*Server).loadAdapter, admin: true},
		"/v1/unload_lora_adapter":        {methods: "POST", handle: (*Server).unloadAdapter, admin: true},
		"/version":                       {methods: "GET", handle: (*Server).version},
		"/health":                        {methods: "GET", handle: (*Server).health},
		"/ping":                          {methods: "GET, POST", handle: (*Server).health},
		"/load":                          {methods: "GET", handle: (*Server).load},
		"/metrics":                       {methods: "GET", handle: (*Server).metrics},
		"/kv_event_sources":              {methods: "GET", handle: (*Server).eventSources, since: 30},
		"/reset_prefix_cache":            {methods: "POST", handle: (*Server).resetPrefixCache, admin: true},
		"/server_info":                   {methods: "GET", handle: (*Server).serverInfo, admin: true},
		"/is_sleeping":                   {methods: "GET", handle: (*Server).isSleeping, admin: true},
		"/sleep":                         {methods: "POST", handle: (*Server).sleepNow, admin: true},
		"/wake_up":                       {methods: "POST", handle: (*Server).wakeUp, admin: true},
		"/openapi.json":                  {methods: "GET", handle: (*Server).adminDone, admin: true},
		"/docs":                          {methods: "GET", handle: (*Server).adminDone, admin: true},
		"/weight_transfer/update_weight": {methods: "POST", handle: (*Server).adminDone, admin: true},
	}
	for path := range strings.FieldsSeq("/reset_mm_cache /reset_encoder_cache /collective_rpc " +
		"/pause /resume /abort_requests /scale_elastic_ep " +
		"/is_scaling_elastic_ep /update_weights /init_weights_update_group /release_kv_cache_memory " +
		"/resume_kv_cache_memory /invocations /start_profile /stop_profile") {
		table[path] = route{methods: "POST", handle: (*Server).adminDone, admin: true}
	}
	return table
}

// pathName returns path as a string. Known paths need no allocation.
func (s *servedPaths) pathName(path []byte) string {
	if name, ok := s.names[string(path)]; ok {
		return name
	}
	return string(path)
}

// serve writes the answer to one request into k.
func (s *Server) serve(k *call) {
	if s.freezes.server.on.Load() {
		s.waitFrozen(k.c.gone)
		if k.broken = k.c.grewOld(); k.broken {
			return
		}
	}
	r, known := s.table.routes[k.path]
	s.calls.count(k.path, known && r.admin)
	if f := s.o.OnRequest; f != nil {
		f(k.seen())
	}
	switch {
	case !s.authorized(k):
		k.respond(401, jsonType, []byte(`{"error":"Unauthorized"}`))
	case !known && k.ofStored():
		s.storedResponse(k)
	case !known || !s.process.versionAtLeast(r.since):
		k.respond(404, jsonType, []byte(`{"detail":"Not Found"}`))
	case !allows(r.methods, k.method):
		k.respondWith(405, jsonType, []byte(`{"detail":"Method Not Allowed"}`), "allow", r.methods)
	case r.gated && !s.o.ScaleOut && s.process.versionAtLeast(21):
		k.fail(403, "PermissionDeniedError", "",
			"Scale-out endpoints are disabled. Start the server with --enable-scale-out to use them.")
	case s.failsQuestion(k):
	default:
		s.calls.busy.Add(1)
		r.handle(s, k)
		s.calls.busy.Add(-1)
	}
}

// failsQuestion fails a GET if a fault says so.
func (s *Server) failsQuestion(k *call) bool {
	if string(k.method) != "GET" {
		return false
	}
	f, fails := s.faults.take("fail", k.path, question)
	if fails {
		k.respond(f.Status, jsonType, []byte(`{"error":"a fault"}`))
	}
	return fails
}

// authorized checks the key on the paths that --api-key protects.
func (s *Server) authorized(k *call) bool {
	scheme, key, _ := strings.Cut(k.head.key, " ")
	if s.o.APIKey == "" || strings.EqualFold(scheme, "bearer") && key == s.o.APIKey {
		return true
	}
	return !strings.HasPrefix(k.path, "/v1") && !strings.HasPrefix(k.path, "/v2") &&
		!strings.HasPrefix(k.path, "/inference")
}

// Seen is one received request.
type Seen struct {
	Method, Path  string
	RequestID     string // X-Request-Id
	Rank          string // X-data-parallel-rank
	ORCA          string // endpoint-load-metrics-format
	Authorization string
	Body          []byte // valid only during the call
}

func (k *call) seen() Seen {
	return Seen{
		Method: string(k.method), Path: k.path, RequestID: k.head.requestID, Rank: k.head.rank, ORCA: k.head.orca,
		Authorization: k.head.key, Body: k.body,
	}
}

func allows(methods string, method []byte) bool {
	for m := range strings.SplitSeq(methods, ", ") {
		if string(method) == m {
			return true
		}
	}
	return false
}

// count counts one request for Calls and AdminCalls. Unknown paths count too, up to 1,000 paths.
func (s *callCounts) count(path string, admin bool) {
	s.countMu.Lock()
	defer s.countMu.Unlock()
	if _, ok := s.callsByPath[path]; ok || len(s.callsByPath) < 1000 {
		s.callsByPath[path]++
	}
	if admin {
		s.adminByPath[path]++
	}
}

// AdminCalls returns the number of requests by path, for paths that a router must never expose.
func (s *Server) AdminCalls() map[string]int {
	s.calls.countMu.Lock()
	defer s.calls.countMu.Unlock()
	return maps.Clone(s.calls.adminByPath)
}

// Calls returns the number of requests by path, including failed ones.
func (s *Server) Calls() map[string]int {
	s.calls.countMu.Lock()
	defer s.calls.countMu.Unlock()
	return maps.Clone(s.calls.callsByPath)
}

// problem is an error answer.
type problem struct {
	status               int
	kind, param, message string
	late                 bool // from the engine, after the request was accepted
}

func (p *problem) Error() string { return p.message }

func badRequest(param, format string, args ...any) *problem {
	return &problem{status: 400, kind: "BadRequestError", param: param, message: fmt.Sprintf(format, args...)}
}

var (
	internalError = &problem{
		status: 500, kind: "InternalServerError", message: "Internal server error", late: true,
	}
	engineDead = &problem{
		status: 500, kind: "InternalServerError", late: true,
		message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
	}
)

// fail answers with an error body.
func (k *call) fail(status int, kind, param, message string) {
	k.failWith(&problem{status: status, kind: kind, param: param, message: message})
}

func (k *call) failWith(p *problem) {
	k.part = k.c.srv.process.appendError(k.part[:0], p)
	k.respond(p.status, jsonType, k.part)
}

// appendError writes the error body of a whole answer. Up to 0.9 the body was flat.
func (s *processStart) appendError(dst []byte, p *problem) []byte {
	if !s.versionAtLeast(10) {
		dst = append(dst, `{"object":"error","message":`...)
		dst = append(rawjson.AppendString(dst, p.message), `,"type":`...)
		dst = append(rawjson.AppendString(dst, p.kind), `,"param":`...)
		dst = append(appendNullable(dst, p.param), `,"code":`...)
		return append(appendInt(dst, p.status), '}')
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = append(rawjson.AppendString(dst, p.message), `,"type":`...)
	dst = append(rawjson.AppendString(dst, p.kind), `,"param":`...)
	dst = append(appendNullable(dst, p.param), `,"code":`...)
	return append(appendInt(dst, p.status), "}}"...)
}

// appendSpacedError writes an error of a stream, with json.dumps's default separators.
func appendSpacedError(dst []byte, p *problem) []byte {
	dst = append(dst, `{"error": {"message": `...)
	dst = append(rawjson.AppendString(dst, p.message), `, "type": `...)
	dst = append(rawjson.AppendString(dst, p.kind), `, "param": `...)
	dst = append(appendNullable(dst, p.param), `, "code": `...)
	return append(appendInt(dst, p.status), "}}"...)
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return rawjson.AppendString(dst, s)
}

// badBody is FastAPI's answer to a body that is not a JSON object.
func badBody() *problem { return invalidBody("body") }

func clip(b []byte) string {
	if len(b) > 200 {
		b = b[:200]
	}
	return strings.ToValidUTF8(string(b), "\ufffd")
}

// rankOf returns the core for a request: the header's rank, else the one with the fewest requests.
// /v1/responses ignores the header.
func (s *Server) rankOf(k *call, p *params) (*rank, *problem) {
	if k.head.rank != "" && p.at != atResponses {
		if n, err := strconv.Atoi(k.head.rank); err == nil {
			if n < 0 || n >= len(s.cores.ranks) {
				bad := badRequest("", "data_parallel_rank %d is out of range [0, %d).", n, len(s.cores.ranks))
				bad.late = true
				return nil, bad
			}
			return s.cores.ranks[n], nil
		}
	}
	best := s.cores.ranks[0]
	for _, r := range s.cores.ranks[1:] {
		if r.open.Load() < best.open.Load() {
			best = r
		}
	}
	return best, nil
}

func randomWord() uint64 { return rand.Uint64() }

// appendHex appends the low digits of w.
func appendHex(dst []byte, w uint64, digits int) []byte {
	const hexDigits = "0123456789abcdef"
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hexDigits[w>>(4*i)&15])
	}
	return dst
}

func randomHex(digits int) string { return string(appendHex(nil, randomWord(), digits)) }
