// Package node runs one member of a cluster: it drives a [replica.Replica] with this machine's clocks, disk and goroutines.
//
// # How it works
//
// One goroutine (run.go) collects events, reads the clock, calls Step and performs the effects in order. A second
// goroutine waits for synced writes and reports them. If only one caller waits for a write, that second goroutine
// calls Step itself.
//
// A renewal or read that memory can answer runs on the caller's goroutine if the replica is free at that moment
// (answer.go). The mutex owner guards the replica: only the goroutine that holds it calls the replica.
//
// A linearizable read needs the replica only for permission. The caller's goroutine then reads the keyspace. The
// member publishes changes before it answers them, to watchers of keys (keyspace.Hub) and of names (name_hub.go).
//
// Messages of other members arrive through [Node.Receive] and [Node.ReceiveState], and leave through a [Transport].
// Each whole state in transfer has a goroutine of its own (states.go).
//
// # How a member ends
//
// [Node.Stop] hands over the leadership, ends the goroutines and closes the database. When the disk fails, the member
// ends by itself and waits for no goroutine, because one that is stuck in the database may never return. [Node.Done]
// is closed in both cases.
//
// # What it never does
//
// It never decides: it performs the effects of Step. It sends no answer without [replica.Authorized], which reads the
// clock once more. It never reports a command as failed that may still take effect.
package node
