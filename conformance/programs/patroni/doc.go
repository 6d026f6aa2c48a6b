// Package patroni holds the tests that run Patroni, a program that fails PostgreSQL over, on a cluster of three members.
//
// Two nodes run Debian's package of Patroni, each with an instance of PostgreSQL that Patroni starts. The same scenario
// runs on Leasekeeper and on etcd. While a client writes without a pause, the cluster loses its leader several times and
// all its members are replaced. PostgreSQL's primary must not notice: it stays the primary, on the same timeline, and its
// sessions live on. Then the scenario orders a switchover, which loses no acknowledged row. At last it kills the primary's
// node, and the other node must take over.
//
// The flag -leaderkills says how often the leader is killed. Patroni and PostgreSQL run as the user postgres if the test
// runs as root.
package patroni
