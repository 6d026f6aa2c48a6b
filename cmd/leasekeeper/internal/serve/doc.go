// Package serve runs a member as a process: the commands serve and restore.
//
// serve puts together the member (internal/replica), its network front (server) and, in a cluster, the connections to
// the other members (internal/peer). It ends them in the right order, and watches the memory of the process in between.
// The package decides nothing about leases.
package serve
