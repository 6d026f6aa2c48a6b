// Package client owns the commands that talk to one server over gRPC: status, member, lease, found,
// transfer-leadership, user, role and access.
//
// status, member and lease use etcd's v3 API, so they work with etcd too. status and member add also ask Leasekeeper's own
// service about the members, if the server has it. The package never opens a store; the commands about names (internal/names) do.
package client
