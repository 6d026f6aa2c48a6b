// Package steps runs the commands that pages of docs give operators, as the pages have them.
//
// [Read] reads a section of a page. The section returns its commands and the blocks of its programs, by a text that only
// one of them has, so a test fails if a page loses a command. [Commands] splits a transcript into commands and their output.
//
// A [Move] goes through the steps of docs/operations.md from etcd to a cluster of three members. It replaces nothing in the
// commands but hosts, ports and directories, and adds an address for HTTP to each member.
//
// The package serves tests only, and imports none of our code besides packages of tests.
package steps
