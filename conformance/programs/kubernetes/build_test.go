package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run runs the tests and removes what they built.
func run(m *testing.M) int {
	defer func() {
		if sources.dir != "" {
			os.RemoveAll(sources.dir)
		}
	}()
	return cluster.Main(m)
}

// module is the directory of the module with Kubernetes' packages.
const module = "apiserver"

// sources is a copy of k8s.io/apiserver in which the package testserver is ours, and of the go.mod that requires it.
var sources struct {
	once sync.Once
	dir  string
	err  error
}

// goCommand returns a go command in the module, which takes k8s.io/apiserver from the copy. Flags are those that all
// such commands share, so that they share what go has compiled.
func goCommand(t *testing.T, verb string, args ...string) *exec.Cmd {
	t.Helper()
	sources.once.Do(func() { sources.dir, sources.err = copySources() })
	if sources.err != nil {
		t.Fatal(sources.err)
	}
	flags := []string{verb, "-mod=mod", "-modfile=" + filepath.Join(sources.dir, "go.mod"), "-trimpath"}
	cmd := exec.Command("go", append(flags, args...)...)
	cmd.Dir = module
	return cmd
}

// buildAPIServer returns the path of the API server, which it builds.
func buildAPIServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "apiserver")
	if _, err := suite.Output(goCommand(t, "build", "-o", binary, ".")); err != nil {
		t.Fatal(err)
	}
	return binary
}

// copySources copies k8s.io/apiserver to a directory of its own, and puts our package testserver in the place of its own.
func copySources() (dir string, err error) {
	const path = "k8s.io/apiserver"
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	list.Dir = module
	download := exec.Command("go", "mod", "download", path)
	download.Dir = module
	if _, err := suite.Output(download); err != nil {
		return "", err
	}
	source, err := suite.Output(list)
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "kubernetes-"); err != nil {
		return "", err
	}
	target := filepath.Join(dir, "apiserver")
	if err := os.CopyFS(target, os.DirFS(source)); err != nil {
		return dir, err
	}
	ours, err := os.ReadFile(filepath.Join(module, "testserver", "testserver.go"))
	if err != nil {
		return dir, err
	}
	replaced := filepath.Join(target, "pkg", "storage", "etcd3", "testserver", "test_server.go")
	if err := os.Remove(replaced); err != nil {
		return dir, err
	}
	if err := os.WriteFile(replaced, ours, 0o600); err != nil {
		return dir, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			return dir, err
		}
	}
	_, err = suite.Output(exec.Command("go", "mod", "edit", "-replace", path+"="+target, filepath.Join(dir, "go.mod")))
	return dir, err
}
