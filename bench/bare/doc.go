// Command bare is a gRPC server that answers etcd's messages and does nothing: it keeps no lease and no
// key, and without a log it writes nothing. What it reaches is what gRPC and the client leave to any server on this machine.
//
// Its first argument is the host:port to listen on. With a second one, the path of a log, it answers grants and puts only
// after a sync of that log, and what it reaches is what gRPC, the client and the disk leave to any server that keeps its
// promises. It runs until it receives SIGTERM.
package main
