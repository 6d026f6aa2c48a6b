// Package python holds the tests that run etcd's client libraries for Python, as Debian packages them: python3-etcd3, which
// speaks gRPC, and python3-etcd3gw, which speaks JSON.
//
// Two scripts in testdata use all that a library offers. Each runs against etcd and against Leasekeeper in the same way,
// and prints a line for each answer. The lines must be equal. Ids of members and leases have names in the order of their
// appearance; sizes, hashes and versions are reduced to what must hold of them.
//
// Another script, faults.py, works without a pause while the test kills the leader and replaces members: it writes, counts
// by transactions, keeps a lease alive, watches, and takes a lock in turns. Neither library follows a cluster by itself. So
// the script connects to the next endpoint after an error and tries again, as their documentation shows. At the end it
// prints what it lost, which must be nothing.
//
// The program that docs/how-to/patroni.md shows runs as it is there, on a cluster whose first member is dead.
package python
