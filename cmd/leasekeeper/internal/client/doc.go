// Package client owns the commands that talk to one server over gRPC: status, lease, found and transfer-leadership.
//
// status and lease use etcd's v3 API, so they work with etcd too. status also asks our own service for the members, if
// the server has it. The package never uses a store as the commands about names do.
package client
