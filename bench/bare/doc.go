// Command bare is a gRPC server that answers etcd's messages and does nothing: it keeps no lease and no
// key, and writes nothing. What it reaches is what gRPC and the client leave to any server on this machine.
//
// It takes one argument, the host:port to listen on, and runs until it is told to stop.
package main
