// Package wire encodes and decodes the fields of protobuf messages, without reflection.
//
// It promises the bytes that package proto writes. Packages that encode a message field by field compare their bytes with
// those of package proto in their tests.
//
// It serves the messages that a busy process writes and reads with every claim, release and log entry:
// internal/replica/record and internal/replica/entry (records and commands), and internal/holdwire (the Hold stream).
//
// It does not know any message, and uses no gRPC.
package wire
