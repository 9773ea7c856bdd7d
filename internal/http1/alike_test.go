package http1

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-router/tandem/internal/lab/memnet"
)

// A client cannot tell whether this package or net/http reads its requests. The handler sees the same request
// and the client gets the same answer, for any bytes from the client.
func TestReadsAsNetHTTPDoes(t *testing.T) {
	const requests = 3000
	dice := rand.New(rand.NewPCG(9, 7))
	all := []string{
		"POST /usual HTTP/1.1\r\nHost: front\r\nPragma: no-cache\r\nConnection: close\r\n" +
			"Content-Length: 4\r\n\r\nbody",
		"POST /usual HTTP/1.1\r\nHost: front\r\nPragma: no-cache\r\nCache-Control: no-store\r\n" +
			"Content-Length: 4\r\n\r\nbody",
	}
	for range requests {
		all = append(all, anyRequests(dice))
	}
	synctest.Test(t, func(t *testing.T) {
		var mem memnet.Net
		l, err := mem.Listen("tcp", "ours:80")
		if err != nil {
			t.Fatal(err)
		}
		x := start(t, l, showRequest, nil)
		x.rest = make(chan string, 4*len(all))
		plain := &http.Server{Handler: http.HandlerFunc(showRequest), ErrorLog: log.New(io.Discard, "", 0)}
		if l, err = mem.Listen("tcp", "theirs:80"); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- plain.Serve(l) }()
		for _, text := range all {
			ours, theirs := exchange(t, &mem, "ours:80", text), exchange(t, &mem, "theirs:80", text)
			if ours != theirs {
				t.Errorf("request %q: got\n%s\nwant the answer of net/http:\n%s", text, ours, theirs)
				break
			}
		}
		if usual := 2*len(all) - len(x.rest); usual < len(all)/10 {
			t.Errorf("got %d usual requests of %d, want at least a tenth", usual, len(all))
		}
		x.end()
		plain.Close()
		<-over
	})
}

// showRequest answers with everything that a handler sees of a request.
func showRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %q %q %s host=%q len=%d te=%v close=%v err=%v trailer=%v\n", r.Method, r.URL,
		r.RequestURI,
		r.Proto, r.Host, r.ContentLength, r.TransferEncoding, r.Close, err, r.Trailer)
	var lines []string
	for key, values := range r.Header {
		lines = append(lines, fmt.Sprintf("%q %q\n", key, values))
	}
	slices.Sort(lines)
	fmt.Fprintf(w, "%s%q", strings.Join(lines, ""), body)
}

// exchange sends text on a new connection and returns what arrives within a second. The lines are sorted,
// because the order of header fields has no meaning.
func exchange(t *testing.T, mem *memnet.Net, addr, text string) string {
	t.Helper()
	nc, err := mem.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Second))
	go func() { _, _ = io.WriteString(nc, text) }() // a server may stop reading before the end
	got, _ := io.ReadAll(nc)                        // until the deadline, if the server keeps the connection
	nc.Close()
	synctest.Wait() // the server has closed its side too, so both servers start at the same time
	lines := strings.Split(string(got), "\r\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Date: ") })
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// anyRequests writes one to three requests. Most are correct; some have one wrong byte.
func anyRequests(dice *rand.Rand) string {
	one := func(of []string) string { return of[dice.IntN(len(of))] }
	var b strings.Builder
	for again := range 1 + dice.IntN(3) {
		end := "\r\n"
		if dice.IntN(15) == 0 {
			end = "\n"
		}
		if dice.IntN(3) > 0 {
			b.WriteString("POST /usual HTTP/1.1" + end)
		} else {
			b.WriteString(one(requestLines) + end)
		}
		var fields []string
		if dice.IntN(8) > 0 {
			fields = append(fields, "Host: front")
		}
		if dice.IntN(8) > 0 {
			fields = append(fields, "Content-Length: 4")
		}
		for range dice.IntN(4) {
			fields = append(fields, one(fieldLines))
		}
		if again > 0 || dice.IntN(2) == 0 {
			fields = append(fields, "Connection: close")
		}
		dice.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		for _, f := range fields {
			b.WriteString(f + end)
		}
		b.WriteString(end + one(bodies))
	}
	text := []byte(b.String())
	if dice.IntN(6) == 0 {
		text[dice.IntN(len(text))] = byte(dice.IntN(256))
	}
	// The line breaks end the last head. net/http may refuse a head without an end before the deadline.
	return string(text) + "\r\n\r\n"
}

var (
	requestLines = []string{
		"POST /usual HTTP/1.0", "POST /usual HTTP/1.1 ", "POST  /usual HTTP/1.1", "POST /usual  HTTP/1.1",
		"post /usual HTTP/1.1", "POST /usual http/1.1", "POST /usual HTTP/1.2", "POST /usual HTTP/2.0",
		"POST /usual",
		"POST http://front/usual HTTP/1.1", "POST http://evil:1/usual HTTP/1.1", "POST //usual HTTP/1.1",
		"POST /usual/ HTTP/1.1", "POST /./usual HTTP/1.1", "POST /%75sual HTTP/1.1", "POST /usual# HTTP/1.1",
		"POST /usual? HTTP/1.1", "GET /usual HTTP/1.1", "CONNECT front:80 HTTP/1.1", "POST * HTTP/1.1",
		"OPTIONS * HTTP/1.1", "POST usual HTTP/1.1", "\r\nPOST /usual HTTP/1.1", "\r\n\r\n\r\nPOST /usual HTTP/1.1",
		"PRI * HTTP/2.0\r\n\r\nSM", "HEAD /usual HTTP/1.1", "PUT /usual HTTP/1.1",
	}
	fieldLines = []string{
		"Host: front", "Host: a", "host:front", "Host: [::1]:80", "Host: a b", "Host:", "Host: a/b",
		"HOST: front:99999",
		"Content-Length: 4", "Content-Length: 04", "Content-Length: +4", "Content-Length: 4, 4",
		"Content-Length: 4\t",
		"content-length:4", "Content-Length: 0", "Content-Length: 3", "Content-Length: 5", "Content-Length: 0x4",
		"Content-Length:", "Content-Length: 4 ", "Content_Length: 9", "Content-Length\t: 4", " Content-Length: 4",
		"Content-Length: -0", "Connection: close", "Connection: keep-alive", "Connection: Close",
		"Connection: close, te", "Connection: keep-alive, close", "Connection:", "Connection: upgrade",
		"Connection: TE, close", "Connection:\tclose\t", "Connection: x", "Transfer-Encoding: chunked",
		"Transfer-Encoding: identity", "transfer-encoding:\tchunked", "Transfer-Encoding: gzip, chunked",
		"Expect: 100-continue", "Expect: x", "Upgrade: websocket", "TE: trailers", "Trailer: X-A",
		"Pragma: no-cache",
		"Pragma: x", "Cache-Control: no-store", "X-A: b", "X-A:", "X-A: \x01", "X-A: a\x00b", "X-A: \x7f",
		"X-A: \x80",
		": empty", "noColon", "X A: b", "X\x00A: b", "x-a_b: c", "X-A: b\r\n c", "X-A: b\r", "X-A: \t b \t",
		"X-Very-Long: " + strings.Repeat("v", 300), "Cookie: a=b", "Cookie: c=d", "Authorization: Bearer x",
		"Accept-Encoding: gzip", "\xffX: a", "Keep-Alive: 5", "Proxy-Connection: keep-alive",
		"Content-Type: application/json", "Content-Encoding: gzip", "Origin: null", "Max-Forwards: 0", "Via: 1.1 a",
	}
	bodies = []string{
		"body", "body", "body", "4\r\nbody\r\n0\r\n\r\n", "", "bo", "bodyextra", "0\r\n\r\n", "body\r\n",
		"body\r\n\r\n",
	}
)
