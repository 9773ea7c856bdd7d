package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// NotVLLMError is an answer that no vLLM server gives: its body is something else than the JSON or the
// metrics that were asked for.
type NotVLLMError struct {
	Path string
	HTML bool
	Err  error // of the JSON decoder, or ErrNoMetrics
}

func (e *NotVLLMError) Error() string {
	if e.HTML && errors.Is(e.Err, ErrNoMetrics) {
		return e.Path + " answered HTML, not metrics"
	}
	if e.HTML {
		return e.Path + " answered HTML, not JSON"
	}
	return fmt.Sprintf("%s answered no JSON: %v", e.Path, e.Err)
}

// Unwrap returns what the reader of the body said.
func (e *NotVLLMError) Unwrap() error { return e.Err }

// NotJSON makes the error of a body of path that the JSON decoder did not take.
func NotJSON(path string, body []byte, err error) error {
	return &NotVLLMError{Path: path, HTML: isHTML(body), Err: err}
}

func isHTML(body []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) }

// Explain tells why the engine at url could not be asked, without our side's port numbers. It also tells what
// an operator can do, "" where that is not known. pool is the configuration path of the engine's pool, such
// as pools.decode.
func Explain(err error, url, pool string) (seen, do string) {
	if seen, do = explainTLS(err, pool); seen != "" {
		return seen, do
	}
	plain := strings.HasPrefix(url, "http://")
	var dns *net.DNSError
	status, isStatus := errors.AsType[*StatusError](err)
	foreign, isForeign := errors.AsType[*NotVLLMError](err)
	const key = "set %s.api_key to the key that the engine was started with (--api-key)"
	switch {
	case isStatus && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return status.Error(), fmt.Sprintf(key, pool)
	case isStatus && status.Status == http.StatusBadRequest && plain:
		return status.Error(), "if the engine has TLS (--ssl-certfile), write https:// in its URL"
	case isStatus && status.Path == "/v1/models":
		return status.Error(), "see that the URL is that of a vLLM server, without a path"
	case isForeign:
		return foreign.Error(), "see that the URL is that of a vLLM server: something else answers there"
	case errors.Is(err, ErrNoMetrics):
		return "/metrics has none of vLLM's series",
			"see that the URL is that of a vLLM server, started without --disable-log-stats"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", "see that the engine is running and listening there; " +
			"--host 0.0.0.0 lets other " +
			"machines reach it"
	case errors.As(err, &dns):
		return "host name " + dns.Name + " cannot be resolved", "correct the host in the URL, or the name service"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time", "look for a firewall on the way, and for an engine that still loads " +
			"its model or hangs"
	case HungUp(err) && plain:
		return endsThem, "see whether the engine runs behind the proxy that stands there; if the engine has TLS " +
			"(--ssl-certfile), write https:// in its URL"
	case HungUp(err):
		return endsThem, "see whether the engine runs behind the proxy that stands there"
	}
	return err.Error(), ""
}

const endsThem = "it takes connections and ends them without an answer"

// explainTLS is [Explain] of TLS handshakes that failed, "" for all else.
func explainTLS(err error, pool string) (seen, do string) {
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	host, otherHost := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case notTLS:
		return "it speaks plain HTTP where TLS was tried", "write http:// in its URL"
	case unknown:
		return "its certificate is signed by itself or by an authority that is not known here",
			fmt.Sprintf("set %s.tls.ca to the file with that certificate", pool)
	case otherHost:
		return "its certificate is not for " + host.Host, "write a name that the certificate has in the URL: " +
			strings.Join(host.Certificate.DNSNames, ", ")
	case isInvalid:
		return "its certificate is not valid: " +
			invalid.Error(), "give the engine a valid certificate (--ssl-certfile)"
	}
	return "", ""
}
