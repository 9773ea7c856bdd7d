package enginesim

import (
	"net"
	"strings"
)

func dialServer(s *Server) (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
}
