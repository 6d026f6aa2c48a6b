package guard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// unchecked are the methods of a member that need no check of their own, each with the reason.
var unchecked = map[string]string{
	"Header":         "it is in every answer",
	"Access":         "Auth checks who reads the policy",
	"Confirm":        "it returns nothing",
	"Members":        "Method needs a user for the list; other services need it for themselves",
	"NewWatchStream": "the Watch service checks each watcher, and others watch what they have read",
	"Status":         "Method needs a user",
	"Shortage":       "Method needs a user for the list of alarms",
	"OrderShortage":  "Method needs the role root",
	"HashKeys":       "Method needs the role root",
	"HashHistory":    "Method needs the role root",
	"Defragment":     "Method needs the role root",
	"EtcdSnapshot":   "Method needs the role root",

	"WatchClaim":  "it reports what became of a lease that the user has claimed",
	"WatchClaims": "it reports what became of leases that the user has claimed",
	"WatchNames":  "Watch checks the right before it begins and before each message",
	"Audit":       "Method needs the role root",

	"Usage":         "Method needs the role root",
	"UnownedLeases": "Method needs the role root",
	"CheckMarks":    "it says what the version of the cluster is",
}

// Each method that a front can call is checked here, or has a reason why not. A method that was forgotten would be that of the
// member itself, which checks nothing.
func TestEveryMethodOfTheMemberIsChecked(t *testing.T) {
	for check, front := range map[string]reflect.Type{
		"Keys": reflect.TypeFor[etcdapi.Member](), "Names": reflect.TypeFor[namesapi.Member](),
	} {
		own := declaredMethods(t, check)
		for i := range front.NumMethod() {
			name := front.Method(i).Name
			if _, excused := unchecked[name]; excused == slices.Contains(own, name) {
				t.Errorf("%s.%s: declared %v, excused %v", check, name, !excused, excused)
			}
		}
	}
}

// declaredMethods returns the methods that the source of this package declares for a type.
func declaredMethods(t *testing.T, of string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			if recv, ok := f.Recv.List[0].Type.(*ast.Ident); ok && recv.Name == of {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
