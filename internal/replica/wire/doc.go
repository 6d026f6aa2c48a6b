// Package wire puts fields of protobuf messages into bytes, and takes them out, without making the messages.
//
// It serves the few messages that a busy member writes and reads with every command. The bytes are those that package
// proto writes; the tests of the packages that use this one compare them.
package wire
