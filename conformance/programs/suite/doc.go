// Package suite runs the compiled Go tests of another project on etcd and on a cluster of three members of Leasekeeper, and
// compares how each test ended.
//
// The tests start a program with etcd's flags. A run gives them either etcd, or the program conformance/programs/etcd,
// which stands for three members.
package suite
