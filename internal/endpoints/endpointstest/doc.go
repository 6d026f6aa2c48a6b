// Package endpointstest has what the tests of gRPC backends share: a server in this process and a client of it ([Store]), three
// servers that are a cluster ([Cluster]), claims ([NewClaim]), a network that can fail ([Proxy]), and requests that can get
// lost ([Faults]).
//
// It is for tests only.
package endpointstest
