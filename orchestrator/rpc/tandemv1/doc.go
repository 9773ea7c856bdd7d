// Package tandemv1 is the generated code of tandem.proto.
package tandemv1

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative tandem.proto
