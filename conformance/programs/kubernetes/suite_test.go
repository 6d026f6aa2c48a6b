package kubernetes

import (
	"path"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

// Every test of Kubernetes' storage, and of its connections to it, ends on a cluster of three as it ends on etcd. No test is
// excluded. Each test of the suites has a cluster of its own, whose members are all among the client's endpoints.
func TestStorageSuite(t *testing.T) {
	suite.Need(t, "kubernetes")
	for _, pkg := range []string{"pkg/storage/etcd3", "pkg/storage/storagebackend/factory"} {
		t.Run(path.Base(pkg), func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "suite.test")
			if _, err := suite.Output(goCommand(t, "test", "-vet=off", "-c", "-o", binary, "k8s.io/apiserver/"+pkg)); err != nil {
				t.Fatal(err)
			}
			suite.Compare(t, suite.Suite{
				Binary:      binary,
				Dir:         filepath.Join(sources.dir, "apiserver", pkg),
				Environment: func(program string) []string { return []string{"SUITE_ETCD=" + program} },
			})
		})
	}
}
