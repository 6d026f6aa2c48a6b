// Package cluster starts clusters of Leasekeeper or of etcd for the tests of real programs, as processes on loopback
// addresses.
//
// A test starts a cluster of either kind in the same way and drives the same program against it. It may kill a member,
// start it again, or replace it: the cluster removes the member, and a new one with an empty data directory joins at the
// addresses of the former. So a program needs only the endpoints that it began with.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
//	func TestProgram(t *testing.T) {
//		c := cluster.Start(t, cluster.Leasekeeper, 3)
//		run(t, "program", "--endpoints", strings.Join(c.Endpoints(), ","))
//		c.Restart(c.KillLeader())
//		c.ReplaceMember(c.Leader())
//	}
//
// The package builds both servers once per test binary: ours from the root module, and etcd in the version of the module
// conformance. It imports none of our code. A cluster belongs to the goroutine of its test and ends with the test. If the
// test fails, the end of each member's log is printed.
package cluster
