// Package testserver starts a server for the tests of k8s.io/apiserver in a process of its own. It has the functions of
// k8s.io/apiserver/pkg/storage/etcd3/testserver, which runs an etcd in the process of the test. The test of the suite puts
// this file in the place of that package.
//
// The environment variable SUITE_ETCD names the program. It is etcd, or a program that understands etcd's
// flags. It may stand for several members: a client receives the endpoints that the server lists.
package testserver
