package enginesim

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
)

func dialServer(s *Server) (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
}

func parseAnswer(all []byte) (int, [][2]string, string, error) {
	head, _, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	var headers [][2]string
	for i, line := range strings.Split(string(head), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && i > 0 {
			headers = append(headers, [2]string{name, value})
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), nil)
	if err != nil {
		return 0, nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, headers, string(body), err
}
