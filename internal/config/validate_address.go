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
