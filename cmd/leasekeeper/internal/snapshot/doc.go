// Package snapshot owns the commands that copy a server's data and make new data directories from copies. They decide
// nothing about leases: package node does.
package snapshot
