package engine

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

// FuzzHead compares parseHead with net/http. A head that parseHead accepts must have the same meaning there.
func FuzzHead(f *testing.F) {
	for _, fields := range []string{
		"", "Content-Length: 5\r\n", "content-length: 5\r\nContent-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
		"Connection: keep-alive, close\r\n",
		"X: a\r\n b\r\n", "X : y\r\n", "X: y\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"A:\t v \r\nB:\r\n", "Content-Length: 0x5\r\n",
	} {
		f.Add([]byte(ok200 + fields + "\r\n"))
	}
	f.Add([]byte("HTTP/1.0 404\r\nServer: uvicorn\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(bytes.Clone(b))
		if err != nil {
			return
		}
		twin, err := http.ReadResponse(bufio.NewReaderSize(bytes.NewReader(b), len(b)+16), nil)
		if err != nil {
			t.Fatalf("%q: got no error, but net/http reports %v", b, err)
		}
		if h.status != twin.StatusCode {
			t.Errorf("%q: got status %d, net/http has %d", b, h.status, twin.StatusCode)
		}
		if bodyless("POST", h.status) || h.status < 200 {
			return
		}
		if chunked := len(twin.TransferEncoding) > 0; h.chunked != chunked {
			t.Errorf("%q: got chunked %v, net/http has %v", b, h.chunked, chunked)
		}
		if !h.chunked && h.length != twin.ContentLength {
			t.Errorf("%q: got length %d, net/http has %d", b, h.length, twin.ContentLength)
		}
		if twin.ProtoMinor == 1 && h.close != (twin.Close && (h.chunked || h.length >= 0 || h.close)) {
			t.Errorf("%q: got close %v, net/http has %v", b, h.close, twin.Close)
		}
		for k, v := range h.fields.All() {
			if got := h.fields.Get(k); strings.EqualFold(k, "content-length") || len(twin.Header.Values(k)) != 1 {
				continue
			} else if got != v || v != twin.Header.Get(k) {
				t.Errorf("%q: got %s %q, net/http has %q", b, k, got, twin.Header.Get(k))
			}
		}
	})
}

// dechunk decodes b in pieces of the given size.
func dechunk(b []byte, piece int) (body []byte, rest int, done bool, err error) {
	var c chunks
	for len(b) > 0 && c.state != chunksDone {
		p := bytes.Clone(b[:min(piece, len(b))])
		n, used, err := c.decode(p)
		body = append(body, p[:n]...)
		if err != nil {
			return body, 0, false, err
		}
		b = b[used:]
	}
	return body, len(b), c.state == chunksDone, nil
}

// FuzzChunks compares the decoder with the decoder of net/http, and with its own result for other pieces.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n00\r\nTrailer: x\r\n\r\nbehind", "5\nhello\n0\n\n",
		"A\r\n0123456789\r\n0\r\n\r\n",
		"fffffffffffffff\r\n", " 5\r\nhello\r\n", "5\r\nhello", "1\r\nx\r\n1\r\ny\r\n1\r\nz\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		piece = max(1, min(piece, 1<<16))
		body, rest, done, err := dechunk(b, len(b)+1)
		body2, rest2, done2, err2 := dechunk(b, piece)
		if !bytes.Equal(body, body2) || rest != rest2 || done != done2 || (err == nil) != (err2 == nil) {
			t.Fatalf("%q: got %q %d %v %v for the whole, but in pieces of %d %q %d %v %v",
				b, body, rest, done, err, piece, body2, rest2, done2, err2)
		}
		if !done {
			return
		}
		twin, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(b)))
		if err != nil || !bytes.Equal(body, twin) {
			t.Errorf("%q: got %q, net/http has %q %v", b, body, twin, err)
		}
	})
}

// FuzzResponse feeds a whole answer in two pieces. If the client accepts it, net/http must read the same.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(ok200+"Content-Length: 5\r\n\r\nhello"), 20)
	f.Add([]byte(ok200+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 50)
	f.Add([]byte(ok200+"\r\nhello"), 3)
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\n"+ok200+"Content-Length: 0\r\n\r\n"), 30)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = max(0, min(cut, len(b)))
		cn := newConn(&replay{pieces: [][]byte{b[:cut], b[cut:]}})
		resp := &Response{client: &Client{}, conn: cn}
		resp.client.idle.closed.Store(true)
		if resp.readHead(bufferSize, "POST", false) != nil {
			resp.release(false)
			return
		}
		body, err := resp.ReadAll(1 << 20)
		if err != nil {
			return
		}
		r := bufio.NewReaderSize(bytes.NewReader(b), len(b)+16)
		twin, err := http.ReadResponse(r, nil)
		for err == nil && twin.StatusCode < 200 {
			twin, err = http.ReadResponse(r, nil)
		}
		if err != nil {
			t.Fatalf("%q: got no error, net/http reports %v", b, err)
		}
		want, err := io.ReadAll(twin.Body)
		if resp.body.framing == byChunks && err != nil {
			return // net/http is stricter about trailers
		}
		if err != nil || !bytes.Equal(body, want) || resp.Status != twin.StatusCode {
			t.Errorf("%q: got %d %q, net/http has %d %q %v", b, resp.Status, body, twin.StatusCode, want, err)
		}
	})
}
