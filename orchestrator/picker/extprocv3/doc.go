// Package extprocv3 is the generated code of extproc.proto, the part of Envoy's external processing protocol
// that the endpoint picker speaks.
package extprocv3

//go:generate protoc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. extproc.proto
