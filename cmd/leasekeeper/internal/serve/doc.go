// Package serve runs a member as a process: the command serve.
//
// serve assembles the member (internal/node), its network front (server) and, in a cluster, the connections to the other
// members (internal/peer). It stops them in the right order, and manages the memory of the process meanwhile. The
// package decides nothing about leases.
package serve
