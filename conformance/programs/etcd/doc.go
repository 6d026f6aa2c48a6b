//go:build linux

// Command etcd is a cluster of three members of Leasekeeper for suites that start a program of this name with etcd's flags.
// Its first member serves clients at the address of --listen-client-urls, and the others at free ports. The environment
// variable SUITE_MEMBER names the program of the members.
//
// The members end with this program, also if it is killed.
package main
