// Package vitess runs Vitess' own code on clusters of Leasekeeper and of etcd, and compares the results.
//
// TestTopologySuite runs the tests of vitess.io/vitess/go/vt/topo/etcd2topo. TestTopologyOutlivesMembers changes a topology
// by vtctldclient while the cluster loses its leader and a member is replaced. The module in modules has the versions of
// what the tests build, which takes minutes when nothing is cached. So they are skipped unless LEASEKEEPER_TEST_REQUIRE
// lists vitess.
package vitess
