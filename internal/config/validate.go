package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate names every contradiction in c at once. The error is [Problems], without lines. It opens no file and reads no environment.
func (c *Config) Validate() error {
	if ps := c.check(); len(ps) > 0 {
		return ps
	}
	return nil
}

// fill puts values into the one form that the rest of the program relies on.
func (c *Config) fill() {
	for _, p := range []*Pool{&c.Pools.Prefill, &c.Pools.Decode} {
		for i := range p.Replicas {
			p.Replicas[i].URL = strings.TrimSuffix(p.Replicas[i].URL, "/")
		}
	}
	for i, peer := range c.Routers.Peers {
		c.Routers.Peers[i] = strings.TrimSuffix(peer, "/")
	}
}

func (c *Config) check() Problems {
	var ck checker
	ck.listeners(c)
	for i, s := range c.APIKeys {
		ck.secret(fmt.Sprintf("api_keys[%d]", i), s, true)
	}
	ck.pool("pools.prefill", c.Pools.Prefill)
	ck.pool("pools.decode", c.Pools.Decode)
	ck.fleet(c.Pools)
	ck.connector(c.Connector)
	ck.oneOf("local", c.Local, LocalAuto, LocalNever, LocalAlways)
	ck.scoring(c.Scoring)
	ck.tokenizer(c.Tokenizer)
	ck.limits(c.Limits)
	ck.timeouts(c.Timeouts)
	ck.retry(c.Retry)
	ck.health(c.Health)
	ck.routers(c.Routers)
	ck.tracing(c.Tracing)
	ck.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	ck.oneOf("log.format", c.Log.Format, "text", "json")
	ck.between("decisions.ring", c.Decisions.Ring, 0, 1_000_000)
	return ck.problems
}

// checker collects problems.
type checker struct{ problems Problems }

func (ck *checker) add(field, message, fix string) {
	ck.problems = append(ck.problems, Problem{Field: field, Message: message, Fix: fix})
}

func (ck *checker) oneOf(field, got string, known ...string) {
	if !slices.Contains(known, got) {
		ck.add(field, fmt.Sprintf("%q is not known", got), didYouMean(got, known))
	}
}

func (ck *checker) between(field string, got, low, high int) {
	if got < low || got > high {
		ck.add(field, fmt.Sprintf("is %d", got), fmt.Sprintf("choose from %d to %d", low, high))
	}
}

func (ck *checker) size(field string, got, low Bytes) {
	if got < low {
		ck.add(field, fmt.Sprintf("is %d bytes", int64(got)), fmt.Sprintf("give at least %d bytes", int64(low)))
	}
}

func (ck *checker) share(field string, got float64) {
	if !(got >= 0 && got <= 1) {
		ck.add(field, fmt.Sprintf("is %v", got), "choose a share from 0 to 1")
	}
}

func (ck *checker) weight(field string, got float64) {
	if !(got >= 0) || math.IsInf(got, 0) {
		ck.add(field, fmt.Sprintf("is %v", got), "choose a number from 0 up")
	}
}

// factor wants a multiple of something that is met.
func (ck *checker) factor(field string, got float64) {
	if !(got >= 1) || math.IsInf(got, 0) {
		ck.add(field, fmt.Sprintf("is %v", got), "choose a number from 1 up")
	}
}

// longer wants a duration of at least low, in any case not a negative one.
func (ck *checker) longer(field string, got, low time.Duration) {
	if got < low {
		ck.add(field, fmt.Sprintf("is %v", got), fmt.Sprintf("give at least %v", low))
	}
}

func (ck *checker) listeners(c *Config) {
	front := ck.address("listen", c.Listen)
	ck.pair("tls", c.TLS.Cert, c.TLS.Key)
	ck.hosts("admin.hosts", c.Admin.Hosts)
	ck.secret("admin.token", c.Admin.Token, false)
	if c.Admin.Listen == "off" {
		return
	}
	admin := ck.address("admin.listen", c.Admin.Listen)
	if front && admin && clash(c.Listen, c.Admin.Listen) {
		ck.add("admin.listen", fmt.Sprintf("%s is the front listener's address too (listen: %s)", c.Admin.Listen, c.Listen),
			"choose another port: what is on the admin listener is not for clients")
	}
}

// hosts are names as they stand in a Host header, without a port.
func (ck *checker) hosts(field string, names []string) {
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "/:@ *") {
			ck.add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%q is not a host name", name), "write the name alone, such as tandem.internal")
		}
	}
}

func (ck *checker) address(field, addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		ck.add(field, fmt.Sprintf("%q is not host:port", addr), `write ":8000" for every interface or "127.0.0.1:8000" for one`)
		return false
	}
	return ck.port(field, port)
}

func (ck *checker) port(field, port string) bool {
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		ck.add(field, fmt.Sprintf("%q is not a port", port), "write a number from 0 to 65535")
		return false
	}
	return true
}

// clash reports whether two addresses that SplitHostPort takes would claim the same port of some interface.
func clash(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	if portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || wildcard(hostA) || wildcard(hostB)
}

func wildcard(host string) bool {
	if host == "" || host == "*" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

func (ck *checker) pair(field, cert, key string) {
	switch {
	case cert != "" && key == "":
		ck.add(field+".cert", "has no key beside it", "set "+field+".key too")
	case cert == "" && key != "":
		ck.add(field+".key", "has no certificate beside it", "set "+field+".cert too")
	}
}

func (ck *checker) secret(field string, s Secret, required bool) {
	const fix = "write {file: path}, {env: NAME} or {value: text}"
	n := 0
	for _, v := range []string{s.Value, s.File, s.Env} {
		if v != "" {
			n++
		}
	}
	switch {
	case n > 1:
		ck.add(field, "says in more than one way what the secret is", "keep one of value, file and env")
	case n == 0 && required:
		ck.add(field, "is empty", fix)
	case s.Value == redacted:
		ck.add(field+".value", "is the placeholder that stands for a secret in print", fix)
	case strings.ContainsAny(s.Value, "\r\n\x00"):
		ck.add(field+".value", "holds a line break", "a secret is one line")
	}
}

func (ck *checker) pool(field string, p Pool) {
	for i, r := range p.Replicas {
		ck.replica(fmt.Sprintf("%s.replicas[%d]", field, i), r)
	}
	ck.secret(field+".api_key", p.APIKey, false)
	ck.clientTLS(field, p)
	ck.oneOf(field+".index", p.Index, IndexEvents, IndexApproximate, IndexOff)
	ck.between(field+".block_size", p.BlockSize, 0, 65536)
	ck.between(field+".blocks", p.Blocks, 0, math.MaxInt32)
	ck.between(field+".speculative_tokens", p.SpeculativeTokens, 0, 64)
	ck.longer(field+".poll_interval", p.PollInterval, 50*time.Millisecond)
	ck.size(field+".index_bytes", p.IndexBytes, 1<<20)
	ck.oneOf(field+".policy", p.Policy, PolicyCost, PolicyTwoState, PolicyBlockTracker, PolicyPrefixHash, PolicyOverlapTiers)
	ck.rule(field, p)
}

func (ck *checker) rule(field string, p Pool) {
	r := p.Rule
	ck.share(field+".rule.threshold", r.Threshold)
	ck.weight(field+".rule.apart", r.Apart)
	ck.factor(field+".rule.times", r.Times)
	ck.factor(field+".rule.bound", r.Bound)
	for _, w := range []struct {
		name string
		got  float64
	}{{"overlap", r.Overlap}, {"load", r.Load}, {"health", r.Health}, {"hot", r.Hot}, {"warm", r.Warm}} {
		ck.weight(field+".rule."+w.name, w.got)
	}
	if sum := r.Overlap + r.Load + r.Health; math.Abs(sum-1) > 1e-9 && sum < math.Inf(1) {
		ck.add(field+".rule", fmt.Sprintf("has weights overlap, load and health that add up to %v", sum), "make them add up to 1")
	}
	if p.Index == IndexOff && p.Policy != PolicyCost {
		ck.add(field+".policy", fmt.Sprintf("is %s, which goes by blocks, and index is off, which names none", p.Policy), "choose cost, or index: events or approximate")
	}
}

func (ck *checker) clientTLS(field string, p Pool) {
	ck.pair(field+".tls", p.TLS.Cert, p.TLS.Key)
	if p.TLS.InsecureSkipVerify && p.TLS.CA != "" {
		ck.add(field+".tls.insecure_skip_verify", "believes any certificate, so ca decides nothing", "keep one of the two")
	}
	https := func(r Replica) bool { return strings.HasPrefix(r.URL, "https://") }
	if p.TLS != (ClientTLS{}) && len(p.Replicas) > 0 && !slices.ContainsFunc(p.Replicas, https) {
		ck.add(field+".tls", "is set and no replica has an https URL", "write https:// in the URLs or leave tls out")
	}
}

func (ck *checker) replica(field string, r Replica) {
	ck.url(field+".url", r.URL, "use api_key of the pool", "write the engine's own address or name")
	if strings.ContainsFunc(r.Name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`",{}/\`, c) }) || len(r.Name) > 128 {
		ck.add(field+".name", fmt.Sprintf("%q is not a name", r.Name), `use letters, digits, ".", "-", "_" and ":", at most 128`)
	}
	ck.zmq(field+".events.endpoint", r.Events.Endpoint)
	ck.zmq(field+".events.replay", r.Events.Replay)
	if r.Events.Endpoint == "" && (r.Events.Replay != "" || r.Events.Topic != "") {
		ck.add(field+".events", "has no endpoint", "set endpoint too, or leave events out to ask the engine")
	}
	if r.Events.Replay != "" && r.Events.Replay == r.Events.Endpoint {
		ck.add(field+".events.replay", "is the endpoint of the live events", "replay is a second port of the engine")
	}
}

// url wants the address of a server; the other two say what to do about a password in it, and about an address to listen on.
func (ck *checker) url(field, raw, instead, own string) {
	const fix = "write http://host:port"
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		ck.add(field, "is missing", fix)
	case err != nil:
		ck.add(field, "is not a URL", fix) // the text of err repeats a password that may stand there
	case u.User != nil:
		ck.add(field, "holds a user name or password", instead)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		ck.add(field, fmt.Sprintf("%q is not the address of an HTTP server", raw), fix)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		ck.add(field, fmt.Sprintf("%q goes on behind the port", raw), fmt.Sprintf("write %s://%s", u.Scheme, u.Host))
	case wildcard(u.Hostname()):
		ck.add(field, fmt.Sprintf("%s is an address to listen on", u.Hostname()), own)
	case u.Port() != "":
		ck.port(field, u.Port())
	}
}

func (ck *checker) zmq(field, endpoint string) {
	if endpoint == "" {
		return
	}
	const fix = "write tcp://host:port"
	rest, tcp := strings.CutPrefix(endpoint, "tcp://")
	if path, ipc := strings.CutPrefix(endpoint, "ipc://"); ipc && path != "" {
		return
	}
	host, port, err := net.SplitHostPort(rest)
	switch {
	case !tcp || err != nil:
		ck.add(field, fmt.Sprintf("%q is not an address to connect to", endpoint), fix)
	case wildcard(host):
		ck.add(field, fmt.Sprintf("%q is an address to listen on", endpoint), "write the engine's own address in place of "+strconv.Quote(host))
	default:
		ck.port(field, port)
	}
}

// fleet wants names, URLs and event endpoints that stand for one engine each.
func (ck *checker) fleet(p Pools) {
	fleet := newFleet()
	for _, side := range []struct {
		field string
		pool  Pool
	}{{"pools.prefill", p.Prefill}, {"pools.decode", p.Decode}} {
		for i, r := range side.pool.Replicas {
			fleet.add(ck, member{side.field, fmt.Sprintf("%s.replicas[%d]", side.field, i), r})
		}
	}
	fleet.shared(ck)
}

// member is a replica with its pool and its own path in the file.
type member struct {
	pool, field string
	Replica
}

type fleet struct {
	members []member
	urls    map[string]member // canonical URL -> first member with it
	names   map[string]member
	events  map[string]member
}

func newFleet() *fleet {
	return &fleet{urls: map[string]member{}, names: map[string]member{}, events: map[string]member{}}
}

func (f *fleet) add(ck *checker, m member) {
	if m.URL == "" {
		return
	}
	f.members = append(f.members, m)
	u := canonical(m.URL)
	twin, known := f.urls[u]
	switch {
	case known && twin.pool == m.pool:
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the pool already (%s)", m.URL, twin.field), "keep one of them")
	case known && !(m.Shared && twin.Shared):
		ck.add(m.field+".url", fmt.Sprintf("%s stands in the other pool already (%s)", m.URL, twin.field),
			"take it out of one pool, or write shared: true at both if it is meant to do both")
	case !known:
		f.urls[u] = m
	}
	if other, taken := f.names[m.ID()]; taken && !known {
		ck.add(m.field+".name", fmt.Sprintf("%q is the name of %s too", m.ID(), other.field), "give each replica its own name")
	} else if !taken {
		f.names[m.ID()] = m
	}
	if other, taken := f.events[m.Events.Endpoint]; taken && m.Events.Endpoint != "" && !known {
		ck.add(m.field+".events.endpoint", fmt.Sprintf("is the endpoint of %s too", other.field), "each engine has its own; blocks of one would be put down to the other")
	} else if !taken {
		f.events[m.Events.Endpoint] = m
	}
}

// shared finds marks without a twin.
func (f *fleet) shared(ck *checker) {
	for _, m := range f.members {
		twin := func(o member) bool { return o.pool != m.pool && canonical(o.URL) == canonical(m.URL) }
		if m.Shared && !slices.ContainsFunc(f.members, twin) {
			ck.add(m.field+".shared", "is set and the other pool has no replica with this URL", "leave it out, or add the replica to the other pool")
		}
	}
}

// canonical writes a URL so that two spellings of one server are equal.
func canonical(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

func (ck *checker) connector(c Connector) {
	ck.oneOf("connector.type", c.Type, NIXL)
	ck.longer("connector.lease", c.Lease, time.Second)
	ck.longer("connector.margin", c.Margin, time.Millisecond)
	if c.Margin >= c.Lease {
		ck.add("connector.margin", fmt.Sprintf("%v is not below connector.lease %v", c.Margin, c.Lease),
			"a decode that starts after the lease reads blocks of somebody else; half the lease is a good margin")
	}
}

func (ck *checker) scoring(s Scoring) {
	ck.oneOf("scoring.units", s.Units, Seconds, Raw)
	ck.oneOf("scoring.calibration", s.Calibration, CalibrationOn, CalibrationOff, CalibrationShadow)
	ck.weight("scoring.alpha", s.Alpha.Value)
	ck.weight("scoring.beta", s.Beta)
	ck.weight("scoring.gamma", s.Gamma)
	ck.weight("scoring.decode_penalty", s.DecodePenalty)
	ck.share("scoring.affinity_share", s.AffinityShare)
	ck.longer("scoring.affinity_saved", s.AffinitySaved, 0)
	ck.longer("scoring.tie_absolute", s.TieAbsolute, 0)
	ck.share("scoring.tie_relative", s.TieRelative)
	if !(s.HeadroomMargin >= 0 && s.HeadroomMargin < 1) {
		ck.add("scoring.headroom_margin", fmt.Sprintf("is %v", s.HeadroomMargin), "choose a share from 0 to below 1: at 1 no request has room")
	}
	ck.between("scoring.expected_output", s.ExpectedOutput, 1, 10_000_000)
	ck.size("scoring.kv_bytes_per_token", s.KVBytesPerToken, 1)
	ck.weight("scoring.speed.prefill", s.Speed.Prefill)
	ck.weight("scoring.speed.local", s.Speed.Local)
	ck.weight("scoring.speed.decode", s.Speed.Decode)
	ck.size("scoring.links.host", s.Links.Host, 1)
	ck.size("scoring.links.rack", s.Links.Rack, 1)
	ck.size("scoring.links.zone", s.Links.Zone, 1)
	ck.size("scoring.links.other", s.Links.Other, 1)
}

func (ck *checker) tokenizer(t Tokenizer) {
	ck.oneOf("tokenizer.source", t.Source, TokensEngines, TokensNone)
	ck.size("tokenizer.cache_bytes", t.CacheBytes, 0)
	if d := t.ChatTTL; d < 0 || d > 24*time.Hour {
		ck.add("tokenizer.chat_ttl", fmt.Sprintf("is %v", d), "choose from 0s, which remembers no chat, to 24h: templates may name the day")
	}
	if !(t.CharsPerToken >= 0.1 && t.CharsPerToken <= 100) {
		ck.add("tokenizer.chars_per_token", fmt.Sprintf("is %v", t.CharsPerToken), "choose from 0.1 to 100; English has about 4")
	}
	if n := t.ChunkBytes; n != 0 && (n < 16 || n > 1<<16) {
		ck.add("tokenizer.chunk_bytes", fmt.Sprintf("is %d", n), "choose from 16 to 65536, or 0 to match prompts by their tokens only")
	}
}

func (ck *checker) limits(l Limits) {
	ck.size("limits.body_bytes", l.BodyBytes, 1<<10)
	ck.size("limits.header_bytes", l.HeaderBytes, 1<<10)
	ck.size("limits.answer_bytes", l.AnswerBytes, 1<<10)
	ck.between("limits.max_prompt_tokens", l.MaxPromptTokens, 0, math.MaxInt32)
	ck.between("limits.batch_prompts", l.BatchPrompts, 1, 1<<16)
	ck.between("limits.samples", l.Samples, 1, 1<<16)
	ck.between("limits.in_flight", l.InFlight, 0, math.MaxInt32)
	ck.between("limits.queue", l.Queue, 0, math.MaxInt32)
	ck.longer("limits.first_token", l.FirstToken, 0)
	if l.InFlight > 0 && l.Queue > l.InFlight {
		ck.add("limits.queue", fmt.Sprintf("%d may wait and only %d may be here at all (limits.in_flight)", l.Queue, l.InFlight), "make in_flight the larger one, or 0 for no limit")
	}
}

func (ck *checker) timeouts(t Timeouts) {
	for _, f := range []struct {
		name string
		got  time.Duration
	}{
		{"read_header", t.ReadHeader},
		{"read_body", t.ReadBody},
		{"idle", t.Idle},
		{"tokenize", t.Tokenize},
		{"queue", t.Queue},
		{"connect", t.Connect},
		{"prefill", t.Prefill},
		{"decode_first", t.DecodeFirst},
		{"decode_idle", t.DecodeIdle},
		{"answer", t.Answer},
		{"client_write", t.ClientWrite},
		{"probe", t.Probe},
	} {
		ck.longer("timeouts."+f.name, f.got, time.Millisecond)
	}
	ck.longer("timeouts.drain", t.Drain, 0)
	if t.Connect > t.Prefill {
		ck.add("timeouts.connect", fmt.Sprintf("%v is longer than timeouts.prefill %v, of which it is a part", t.Connect, t.Prefill), "make it shorter")
	}
}

func (ck *checker) retry(r Retry) {
	ck.between("retry.attempts", r.Attempts, 1, 10)
	ck.share("retry.share", r.Share)
	ck.between("retry.min", r.Min, 0, math.MaxInt32)
	ck.oneOf("retry.continue", r.Continue, ContinueGreedy, ContinueAlways, ContinueOff)
}

func (ck *checker) health(h Health) {
	ck.between("health.failures", h.Failures, 1, 1000)
	e := h.Ejection
	ck.between("health.ejection.failures", e.Failures, 0, 1000)
	ck.share("health.ejection.share", e.Share)
	ck.longer("health.ejection.base", e.Base, 100*time.Millisecond)
	if e.Max < e.Base {
		ck.add("health.ejection.max", fmt.Sprintf("%v is shorter than health.ejection.base %v", e.Max, e.Base), "make it longer")
	}
}

func (ck *checker) routers(r Routers) {
	first := map[string]int{}
	for i, peer := range r.Peers {
		field := fmt.Sprintf("routers.peers[%d]", i)
		before := len(ck.problems)
		ck.url(field, peer, "leave it out: the admin listener asks for none", "write the router's own address or name")
		if j, twice := first[canonical(peer)]; twice && len(ck.problems) == before {
			ck.add(field, fmt.Sprintf("%s is routers.peers[%d] too", peer, j), "keep one of them")
			continue
		}
		first[canonical(peer)] = i
	}
	ck.longer("routers.interval", r.Interval, 20*time.Millisecond)
	if r.Interval > 10*time.Second {
		ck.add("routers.interval", fmt.Sprintf("is %v", r.Interval), "give at most 10s: most of what was booked has ended by then")
	}
}

func (ck *checker) tracing(t Tracing) {
	if t.Exporter != TraceEnv {
		ck.oneOf("tracing.exporter", t.Exporter, TraceOTLP, TraceStdout, TraceFile, TraceNone)
	}
	switch {
	case t.Exporter == TraceFile && t.File == "":
		ck.add("tracing.file", "is missing", "name the file that exporter: file appends to")
	case t.Exporter != TraceFile && t.File != "":
		ck.add("tracing.file", fmt.Sprintf("is set and the exporter is %q", t.Exporter), "write exporter: file, or leave file out")
	case t.Exporter != TraceOTLP && t.Endpoint != "":
		ck.add("tracing.endpoint", fmt.Sprintf("is set and the exporter is %q", t.Exporter), "write exporter: otlp, or leave endpoint out")
	}
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		ck.add("tracing.endpoint", "is not a URL", "write http://host:4317 for gRPC, http://host:4318 for http/protobuf")
	}
	ck.share("tracing.sample", t.Sample)
}
