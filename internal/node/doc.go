// Package node runs one member of a cluster: it drives a [replica.Replica] with this machine's clocks, disk and goroutines.
//
// # How it works
//
// One goroutine (run.go) takes what has come, reads the clock, calls Step and performs its effects in order. A second one
// waits for synced writes and reports them; where a single caller waits, it calls Step itself. A caller that asks for what
// memory can answer is answered on its own goroutine if nobody works on the replica at that moment (answer.go). The mutex
// owner guards the replica: its holder is the only one that calls it.
//
// A read needs no turn of the replica's goroutine beyond the permission: the caller's goroutine reads the keyspace. What
// changes is published before it is answered, to watchers of keys (keyspace.Hub) and of names (name_hub.go).
//
// Other members' messages come in by [Node.Receive] and [Node.ReceiveState], and leave through a [Transport]. A whole state
// on its way to a member or from one has a goroutine of its own (states.go).
//
// # Ends
//
// [Node.Stop] hands over the leadership, ends the goroutines and closes the database. When the disk fails, the member ends
// by itself, and waits for nobody: a goroutine that is stuck in the database may never come back. [Node.Done] says so.
//
// # What it never does
//
// It never decides: what it does follows from effects. It never sends an answer without [replica.Authorized], which looks
// at the clock once more, and never reports as failed what may yet take effect.
package node
