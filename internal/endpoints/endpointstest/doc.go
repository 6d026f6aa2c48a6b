// Package endpointstest has what the tests of gRPC backends share:
//
//   - Store: a server in this process, and a client of it
//   - Cluster: three servers in this process that form a cluster
//   - Proxy: a network that can fail
//   - Faults: requests that can get lost
//   - NewClaim, Hold, Enqueue, Renew: what tests do most
//
// It is for tests only.
package endpointstest
