// Command generate writes the Go code of all .proto files of this module. It needs protoc, protoc-gen-go,
// protoc-gen-go-grpc and protoc-gen-grpc-gateway. It takes the files that ours import from the Go modules that have
// them compiled in, so the repository needs no copy of them.
package main

//go:generate go run .
