// Package client owns the commands that talk to one server over gRPC: status, member, lease, found,
// transfer-leadership, user, role and access.
//
// status, member and lease use etcd's v3 API, so they work with etcd too. status and member add also ask Leasekeeper's own
// service about the members, if the server has it. A command takes the server from --endpoint, or
// from the URL of a store of names. status also shows the state of a database. For that the package
// creates no file and no table, and changes nothing in the database.
package client
