// Package snapshotstream sends a snapshot of a member's data in many messages, for each service that has a method for that. It knows no format.
//
// It promises that all parts together are the snapshot, and that the snapshot is removed from the disk in the end.
package snapshotstream
