// Package kubernetes runs Kubernetes' own code on clusters of Leasekeeper and of etcd, and compares the results.
//
// TestStorageSuite runs the tests of k8s.io/apiserver/pkg/storage/etcd3. TestObjectsOutliveMembers runs a real API
// server while the cluster loses its leader and a member is replaced. TestObjectsMoveFromEtcd moves an API server's
// objects from etcd by the commands of docs/how-to/kubernetes.md. The module in apiserver has the versions of
// Kubernetes' modules, and the few lines that this takes. The tests build it, which takes minutes when nothing is
// cached. So they are skipped unless LEASEKEEPER_TEST_REQUIRE lists kubernetes.
package kubernetes
