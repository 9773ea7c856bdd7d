package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

func (ck *checker) address(field, addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		ck.add(field, fmt.Sprintf("%q is not host:port", addr),
			`write ":8000" for every interface or "127.0.0.1:8000" for one`)
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

// url wants the address of a server; the other two say what to do about a password in it, and about an
// address to listen on.
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
		ck.add(field, fmt.Sprintf("%q continues behind the port", raw),
			fmt.Sprintf("write %s://%s", u.Scheme, u.Host))
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
		ck.add(field, fmt.Sprintf("%q is an address to listen on", endpoint),
			"write the engine's own address in place of "+strconv.Quote(host))
	default:
		ck.port(field, port)
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

// hosts are names as they stand in a Host header, without a port.
func (ck *checker) hosts(field string, names []string) {
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "/:@ *") {
			ck.add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%q is not a host name", name),
				"write the name alone, such as tandem.internal")
		}
	}
}

// dnsName wants a name that DNS can be asked for; an address belongs into the field called instead.
func (ck *checker) dnsName(field, raw, instead string) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return // reported already
	}
	host := u.Hostname()
	switch _, err := netip.ParseAddr(host); {
	case err == nil:
		ck.add(field, fmt.Sprintf("%s is an address, and no name", host), "write it under "+instead)
	case strings.HasPrefix(host, "_") && u.Port() != "":
		ck.add(field, fmt.Sprintf("%s is a name of SRV records, which bring their ports", host),
			fmt.Sprintf("write %s://%s", u.Scheme, host))
	}
}

func (ck *checker) router(field, url string) {
	ck.url(field, url, "leave it out: the admin listener asks for none",
		"write the router's own address or name")
}

// peers wants the addresses of routers, each once.
func (ck *checker) peers(list string, peers []string) {
	first := map[string]int{}
	for i, peer := range peers {
		field := fmt.Sprintf("%s[%d]", list, i)
		before := len(ck.problems)
		ck.router(field, peer)
		if j, twice := first[canonical(peer)]; twice && len(ck.problems) == before {
			ck.add(field, fmt.Sprintf("%s is %s[%d] too", peer, list, j), "keep one of them")
			continue
		}
		first[canonical(peer)] = i
	}
}

func (r *Routers) check(ck *checker) {
	r.Valkey.check(ck, "routers.valkey")
	ck.peers("routers.peers", r.Peers)
}
