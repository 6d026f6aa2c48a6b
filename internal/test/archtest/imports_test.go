package archtest

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// isStandard reports whether a package belongs to the standard library: its path has no dot in the first element.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

// everywhereBut forbids imports below prefix outside the folders in only.
type everywhereBut struct {
	prefix string
	only   []string
}

// onlyIn lists the imports that only some folders may have. Tests may import anything.
var onlyIn = []everywhereBut{
	{"google.golang.org/grpc", []string{"server", "internal/credential", "internal/peer", "internal/endpoints", "backend/remote", "backend/etcd", "api", "cmd"}},
	{"go.etcd.io/etcd/api/v3/etcdserverpb", []string{"server", "internal/credential", "internal/endpoints", "backend/remote", "backend/etcd", "api", "cmd"}},
	{"go.etcd.io/etcd/server/v3", nil},
	{"go.etcd.io/etcd/client/v3", nil},
	{"go.etcd.io/raft/v3", []string{"internal/replica", "internal/raftlog", "internal/node", "internal/statexfer", "internal/test/simulation"}},
	// The driver is above the replica: nothing below the server, and no simulation, needs it.
	{modulePath + "/internal/node", []string{"server", "internal/endpoints/endpointstest", "cmd"}},
	{modulePath + "/cmd", []string{"cmd"}},
	{"flag", []string{"cmd"}},
	{"github.com/spf13", []string{"cmd"}},
}

func (r everywhereBut) allows(f *file) bool {
	for _, folder := range r.only {
		if within(f.dir(), folder) {
			return true
		}
	}
	return false
}

func misplacedImports(t *tree) []breach {
	var found []breach
	for _, f := range t.files {
		if f.isTest() || f.nested() {
			continue
		}
		for _, spec := range f.ast.Imports {
			for _, rule := range onlyIn {
				if within(importPath(spec), rule.prefix) && !rule.allows(f) {
					found = append(found, breach{t.at(spec), "imports " + importPath(spec) +
						", which is only for: " + strings.Join(rule.only, ", ")})
				}
			}
		}
	}
	return found
}

func TestImportsAreAllowed(t *testing.T) { holds(t, misplacedImports(repository(t))) }

func TestForbiddenImportsAreCaught(t *testing.T) {
	for _, rule := range onlyIn {
		bad := example(t, "lessor/x.go", "package lessor\n\nimport _ \""+rule.prefix+"\"\n",
			"lessor/x_test.go", "package lessor\n\nimport _ \""+rule.prefix+"\"\n")
		catches(t, misplacedImports(bad), "lessor/x.go", rule.prefix)
		for _, folder := range rule.only {
			good := example(t, folder+"/sub/x.go", "package x\n\nimport _ \""+rule.prefix+"\"\n")
			holds(t, misplacedImports(good))
		}
	}
	// The keyspace knows nothing of Raft.
	bad := example(t, "internal/keyspace/x.go", "package keyspace\n\nimport _ \"go.etcd.io/raft/v3/raftpb\"\n")
	catches(t, misplacedImports(bad), "internal/keyspace/x.go", "raftpb")
}

// ownOnly limits the imports of a folder's files: the standard library without the packages in not, and those in also.
// It does not hold for folders below.
type ownOnly struct {
	folder string
	also   []string
	not    []string
}

var (
	outside     = []string{"os", "net", "database/sql", "syscall", "os/exec", "plugin", "io/ioutil"}
	ownOnlyList = []ownOnly{
		// The core of the fence touches no file, socket or database: the folders below it do.
		{"fence", []string{modulePath + "/clock"}, outside},
		{"fence/httpfence", []string{modulePath + "/fence"}, nil},
		{"fence/filefence", []string{modulePath + "/fence"}, nil},
		{"fence/sqlfence", []string{modulePath + "/fence"}, nil}, // the driver is the user's choice
		{"fence/mongofence", []string{modulePath + "/fence", "go.mongodb.org/mongo-driver/v2/bson", "go.mongodb.org/mongo-driver/v2/mongo", "go.mongodb.org/mongo-driver/v2/mongo/options",
			"go.mongodb.org/mongo-driver/v2/mongo/readpref", "go.mongodb.org/mongo-driver/v2/mongo/writeconcern"}, nil},
		// The data directory knows the database, and no record in it but by the first bytes of keys.
		{"internal/datadir", []string{"github.com/cockroachdb/pebble/v2", "github.com/cockroachdb/pebble/v2/vfs", "golang.org/x/sys/unix",
			modulePath + "/internal/keyspace", modulePath + "/internal/replica/gate", modulePath + "/internal/replica/record"}, nil},
	}
)

func foreignImports(t *tree) []breach {
	var found []breach
	for _, f := range t.files {
		for _, rule := range ownOnlyList {
			if f.isTest() || f.dir() != rule.folder {
				continue
			}
			for _, spec := range f.ast.Imports {
				p := importPath(spec)
				if !isStandard(p) && !slices.Contains(rule.also, p) || slices.ContainsFunc(rule.not, func(n string) bool { return within(p, n) }) {
					found = append(found, breach{t.at(spec), rule.folder + " must not import " + p})
				}
			}
		}
	}
	return found
}

func TestListedFoldersImportOnlyAllowedPackages(t *testing.T) {
	holds(t, foreignImports(repository(t)))
}

func TestForeignImportsAreCaught(t *testing.T) {
	for _, rule := range ownOnlyList {
		importing := func(p string) *tree {
			return example(t, rule.folder+"/x.go", "package x\n\nimport _ \""+p+"\"\n",
				rule.folder+"/x_test.go", "package x\n\nimport _ \""+p+"\"\n",
				rule.folder+"/sub/x.go", "package x\n\nimport _ \""+p+"\"\n")
		}
		for _, p := range append([]string{modulePath + "/backend", modulePath + "/fences", "modernc.org/sqlite"}, rule.not...) {
			catches(t, foreignImports(importing(p)), rule.folder+"/x.go", p)
		}
		for _, p := range append([]string{"context", "sync"}, rule.also...) {
			holds(t, foreignImports(importing(p)))
		}
	}
}

// worldly finds what only the command may do: read the environment and flags, write to standard output, and end the
// process. Packages for tests may do it too.
func worldly(t *tree) []breach {
	forbidden := map[string]string{
		"os.Getenv": "reads the environment", "os.LookupEnv": "reads the environment",
		"os.Environ": "reads the environment", "os.ExpandEnv": "reads the environment",
		"os.Args": "reads the command line", "os.Stdin": "reads standard input",
		"os.Stdout": "writes to standard output", "fmt.Print": "writes to standard output",
		"fmt.Printf": "writes to standard output", "fmt.Println": "writes to standard output",
		"os.Exit": "ends the process", "log.Fatal": "ends the process", "log.Fatalf": "ends the process",
	}
	var found []breach
	for _, f := range t.files {
		if f.isTest() || f.nested() || within(f.dir(), "cmd") || within(f.dir(), "internal/test/archtest") || within(f.dir(), "internal/test/required") || within(f.dir(), "internal/test/pageprogram") {
			continue
		}
		names := importNames(f.ast)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if why := forbidden[qualified(names, sel)]; why != "" {
					found = append(found, breach{t.at(sel), qualified(names, sel) + " " + why + ", which only cmd may do"})
				}
			}
			return true
		})
	}
	return found
}

// importNames returns the import paths of a file by the names they have in it.
func importNames(f *ast.File) map[string]string {
	names := make(map[string]string)
	for _, spec := range f.Imports {
		p := importPath(spec)
		name := p[strings.LastIndex(p, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

// qualified returns "import/path.Name" for such a selector, else "".
func qualified(names map[string]string, sel *ast.SelectorExpr) string {
	if id, ok := sel.X.(*ast.Ident); ok && names[id.Name] != "" {
		return names[id.Name] + "." + sel.Sel.Name
	}
	return ""
}

func TestOnlyTheCommandTouchesTheProcess(t *testing.T) { holds(t, worldly(repository(t))) }

func TestTouchingTheProcessIsCaught(t *testing.T) {
	env := "package server\n\nimport \"os\"\n\nvar x = os.Getenv(\"X\")\n"
	catches(t, worldly(example(t, "server/x.go", env)), "server/x.go", "environment")
	out := "package server\n\nimport f \"fmt\"\n\nfunc x() { f.Println() }\n"
	catches(t, worldly(example(t, "server/x.go", out)), "server/x.go", "standard output")
	holds(t, worldly(example(t, "cmd/leasekeeper/x.go", env, "server/x_test.go", out)))
}
