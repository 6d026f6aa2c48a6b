// Package node holds the tests that run npm's package etcd3, a client library of etcd for Node.js, in the version that
// testdata/package-lock.json pins.
//
// features.js uses what the library offers and prints a line for each answer, which must be the one that etcd gives.
// faults.js works without a pause while the test kills the leader and replaces members. The library knows all endpoints and
// moves to another one by itself after an error. The script repeats what may be repeated, and finds out what is there before
// it goes on.
//
// These tests install the package from the npm registry. They run where LEASEKEEPER_TEST_REQUIRE names npm-etcd3, and need
// Node.js and npm. The package's own tests come from a checkout of its repository, which ETCD3_SOURCE names. They connect to one
// address, so they run on a server that is alone.
package node
