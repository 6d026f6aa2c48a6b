// Package client owns the commands that talk to one server over gRPC: status, lease, found and transfer-leadership.
//
// status and lease use etcd's v3 API, so they work with etcd too. status also asks Leasekeeper's own service for the
// members, if the server has it. The package never opens a store; the commands about names (internal/names) do.
package client
