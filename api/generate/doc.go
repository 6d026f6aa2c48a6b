// Command generate makes the Go code of the .proto files in the folders beside this one. It needs protoc,
// protoc-gen-go and protoc-gen-go-grpc. What they import of etcd's it takes from the Go module, which has it
// compiled in, so that no copy of it has to lie around.
package main

//go:generate go run .
