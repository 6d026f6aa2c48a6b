// Command generate makes the Go code of the .proto files in the folders beside this one. It needs protoc,
// protoc-gen-go, protoc-gen-go-grpc and protoc-gen-grpc-gateway. What they import of others it takes from the
// Go modules, which have it compiled in, so that no copy of it has to lie around.
package main

//go:generate go run .
