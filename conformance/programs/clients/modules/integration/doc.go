// Package integration stands in for the package framework/integration of etcd's tests, which runs etcd within the test
// binary. This one runs the members as processes: of etcd, or of Leasekeeper.
//
// The tests of package clients compile etcd's suites with these files in the place of etcd's, so the suites themselves stay
// as they are. The package has those types, functions and settings that the suites use. Variables of the environment say what
// it runs:
//
//   - SUITE_KIND is the kind of server, etcd or leasekeeper, and SUITE_PROGRAM the path of its program.
//   - SUITE_FAULTS, if it is set, is a file. Each cluster then has three members, and clients know all of them. While the
//     cluster runs, its leader is killed and a member is replaced, again and again. Each fault is a line in the file.
package integration
