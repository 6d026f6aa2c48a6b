// Package message owns the messages that the members of a cluster send each other, and their bytes.
//
// A [Message] carries a message of Raft, what belongs to the master lease, renewals that followers forward, and how one
// member knows another ([Standing]). Each part may be missing. The format is memberpb.Message, whose fields are added and
// never renumbered, so members of different versions understand each other.
//
// The package decides nothing and never trusts a sender: the connection says which member sent a message, and [Parse]
// refuses a message of Raft that says otherwise.
package message
