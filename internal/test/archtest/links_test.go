package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// listed holds the fields of the output of `go list -json` that the rules use.
type listed struct {
	ImportPath string
	Export     string
	GoFiles    []string
	Deps       []string
}

// goList runs `go list` in the root of the repository.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Export,GoFiles,Deps"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// unlinked forbids a package to link others, directly or not.
type unlinked struct {
	folder string // "" is the root; "..." any package
	from   []string
}

var (
	heavy = []string{"go.etcd.io/raft", "github.com/cockroachdb/pebble", "google.golang.org/grpc", "go.mongodb.org/mongo-driver"}

	// unlinkedRules may speak of packages that do not exist yet.
	unlinkedRules = []unlinked{
		{"...", []string{"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/client/v3"}},
		{"", heavy},
		{"clock", heavy},
		{"lessor", heavy},
		{"masterlease", heavy},
		{"fence", heavy},
		{"backend", heavy},
		{"claim", heavy},
		{"backend/claimed", heavy},
		{"claim/sqlstore", heavy},
		{"backend/postgres", heavy},
		{"backend/sqlite", heavy},
		{"backend/mongodb", heavy[:3]},
		{"internal/keyspace", []string{"go.etcd.io/raft", "google.golang.org/grpc"}},
		{"internal/replica", []string{"google.golang.org/grpc"}},
	}
)

func (r unlinked) speaksOf(importPath string) bool {
	if r.folder == "..." {
		return true
	}
	return importPath == path.Join(modulePath, r.folder)
}

func linkedWrongly(packages []listed) []breach {
	var found []breach
	for _, p := range packages {
		for _, r := range unlinkedRules {
			if !r.speaksOf(p.ImportPath) {
				continue
			}
			for _, from := range r.from {
				for _, dep := range p.Deps {
					if within(dep, from) {
						found = append(found, breach{p.ImportPath, "must not depend on " + dep})
						break
					}
				}
			}
		}
	}
	return found
}

// links lists all packages that a package may link, besides the standard library.
type links struct {
	folder string // "" is the root
	only   []string
}

// lean are the packages that every program links, whatever its store.
var lean = []links{
	{"clock", nil},
	{"backend", []string{modulePath + "/clock", modulePath + "/fence"}},
	{"backend/memory", []string{modulePath + "/clock", modulePath + "/fence", modulePath + "/backend"}},
	{"", []string{modulePath + "/clock", modulePath + "/fence", modulePath + "/backend", modulePath + "/internal/backoff", modulePath + "/internal/keepalive", modulePath + "/internal/waitlist"}},
}

func linkedNeedlessly(packages []listed) []breach {
	var found []breach
	for _, p := range packages {
		for _, r := range lean {
			if p.ImportPath != path.Join(modulePath, r.folder) {
				continue
			}
			for _, dep := range p.Deps {
				if !isStandard(dep) && !slices.Contains(r.only, dep) && !strings.HasPrefix(dep, "golang.org/x/sys/") && !strings.HasPrefix(dep, "crypto/internal/") {
					found = append(found, breach{p.ImportPath, "must not depend on " + dep + ": every program links it"})
				}
			}
		}
	}
	return found
}

func TestPackagesLinkOnlyWhatTheyUse(t *testing.T) {
	all := goList(t, "./...")
	holds(t, linkedWrongly(all))
	holds(t, linkedNeedlessly(all))
}

func TestNeedlessLinksAreCaught(t *testing.T) {
	for _, r := range lean {
		bad := path.Join(modulePath, r.folder)
		catches(t, linkedNeedlessly([]listed{{ImportPath: bad, Deps: []string{"fmt", "example.org/x"}}}), bad, "example.org/x")
		catches(t, linkedNeedlessly([]listed{{ImportPath: bad, Deps: []string{modulePath + "/server"}}}), bad, "/server")
		holds(t, linkedNeedlessly([]listed{{ImportPath: bad, Deps: append([]string{"fmt", "golang.org/x/sys/unix"}, r.only...)}}))
	}
}

// Tests of the root module must not need etcd's server and client either. Tests that do are in the module conformance.
func TestTestsDoNotNeedEtcd(t *testing.T) {
	for _, p := range goList(t, "-deps", "-test", "./...") {
		for _, from := range unlinkedRules[0].from {
			if within(p.ImportPath, from) {
				t.Errorf("a test depends on %s: it belongs in conformance", p.ImportPath)
			}
		}
	}
}

func TestWrongLinksAreCaught(t *testing.T) {
	for _, r := range unlinkedRules {
		for _, from := range r.from {
			bad := path.Join(modulePath, strings.TrimPrefix(r.folder, "..."))
			catches(t, linkedWrongly([]listed{{ImportPath: bad, Deps: []string{"fmt", from + "/x"}}}), bad, from)
		}
	}
	holds(t, linkedWrongly([]listed{{ImportPath: modulePath + "/server", Deps: []string{"google.golang.org/grpc"}}}))
}
