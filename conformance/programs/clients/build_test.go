package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests and removes what they built.
func runTests(m *testing.M) int {
	defer func() {
		if suites.dir != "" {
			os.RemoveAll(suites.dir)
		}
	}()
	return cluster.Main(m)
}

const (
	// testsModule is etcd's module of tests, and suitePackages the path of the suites below it.
	testsModule   = "go.etcd.io/etcd/tests/v3"
	suitePackages = "integration/clientv3"

	// replacedPackage is the package of testsModule that modules/integration stands in for.
	replacedPackage = "framework/integration"
)

// binaries are the compiled suites.
type binaries struct {
	dir string // one test binary per suite, NAME.test
	src string // the sources of testsModule that they were compiled from
}

// suites has what the first test that needs it compiles. No tests run in parallel then.
var suites struct {
	dir      string // "": nobody has tried to compile
	compiled bool
	binaries binaries
}

// compiled returns the compiled suites of the table.
func compiled(t *testing.T, rows table) binaries {
	t.Helper()
	switch {
	case suites.compiled:
		return suites.binaries
	case suites.dir != "":
		t.Fatal("an earlier test could not compile the suites")
	}
	dir, err := os.MkdirTemp("", "clients-")
	check(t, err)
	suites.dir = dir
	suites.binaries = compile(t, dir, rows.suites())
	suites.compiled = true
	return suites.binaries
}

func compile(t *testing.T, dir string, suites []string) binaries {
	t.Helper()
	b := binaries{dir: filepath.Join(dir, "bin"), src: filepath.Join(dir, "tests")}
	copySources(t, b.src)
	modfile := filepath.Join(dir, "go.mod")
	programs, err := filepath.Abs("..")
	check(t, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("modules", name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	run(t, exec.Command("go", "mod", "edit", "-replace", testsModule+"="+b.src, "-replace", "github.com/leasekeeper/leasekeeper/conformance/programs="+programs, modfile))
	// Not -trimpath: so these share what was compiled for the module conformance.
	build := exec.Command("go", "test", "-modfile", modfile, "-vet=off", "-c", "-o", b.dir+string(filepath.Separator))
	for _, name := range suites {
		build.Args = append(build.Args, testsModule+"/"+suitePackages+"/"+name)
	}
	build.Dir = "modules"
	run(t, build)
	return b
}

// copySources copies etcd's module of tests from the module cache, with our package in the place of one of theirs.
func copySources(t *testing.T, target string) {
	t.Helper()
	download := exec.Command("go", "mod", "download", testsModule)
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", testsModule)
	download.Dir, list.Dir = "modules", "modules"
	run(t, download)
	source := run(t, list)
	check(t, os.CopyFS(target, os.DirFS(source)))
	replaced := filepath.Join(target, filepath.FromSlash(replacedPackage))
	check(t, os.RemoveAll(replaced))
	check(t, os.CopyFS(replaced, os.DirFS(filepath.Join("modules", "integration"))))
}

// list returns the names of the tests and examples of a suite.
func (b binaries) list(t *testing.T, suite string) []string {
	t.Helper()
	return strings.Fields(run(t, b.command(suite, "-test.list", "^(Test|Example)")))
}

// command returns a command that runs a suite in the directory of its sources.
func (b binaries) command(suite string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(b.dir, suite+".test"), args...)
	cmd.Dir = filepath.Join(b.src, filepath.FromSlash(suitePackages), suite)
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := suite.Output(cmd)
	check(t, err)
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
