// Package endpointstest is what the tests of backends share that reach their store by gRPC: a server of this process
// and a client of it, claims, a network that can fail ([Proxy]), and requests that can get lost ([Faults]).
//
// It is for tests only.
package endpointstest
