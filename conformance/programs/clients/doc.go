// Package clients runs the suites of etcd's own client library on servers and clusters of Leasekeeper and of etcd:
// concurrency, lease (with leasing) and watch of go.etcd.io/etcd/tests/v3/integration/clientv3.
//
// Each test of the suites is in testdata/tests.txt, as it runs or is excluded with a reason. A test that runs must pass on
// both. Some run a second time while the leader is killed and members are replaced.
//
// The suites call a package that runs etcd within the test binary. The tests compile them with modules/integration in its
// place, which runs processes. The module in modules has the version of the suites. They are fetched and compiled from the
// module cache, so this repository has none of their code. A part of the tests runs by default, and all of them if
// LEASEKEEPER_TEST_REQUIRE lists clients.
package clients
