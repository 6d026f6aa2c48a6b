// Package etcdapi owns the front of etcd's v3 API: KV, Lease, Watch, Cluster, Maintenance, Auth, Lock and Election.
//
// Most methods turn a request into one call of the [Member], and its answer into etcd's message. All errors pass
// through one table with the texts and codes of etcd 3.7, because clients tell errors apart by their text. A request
// with an unknown outcome is answered as timed out, never as failed. Lock and Election follow the recipes of etcd's
// client.
//
// It never answers for another member, and never guesses an outcome.
package etcdapi
