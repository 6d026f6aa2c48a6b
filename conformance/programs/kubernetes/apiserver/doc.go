// Command apiserver is a Kubernetes API server for CustomResourceDefinitions and their objects, with the flags of
// k8s.io/apiextensions-apiserver. It serves everyone who reaches it: it asks no other API server who a client is or what
// it may do. With --address-name it also keeps a record of its address under a lease, as API servers of a whole Kubernetes do.
// It is for tests on loopback addresses.
package main
