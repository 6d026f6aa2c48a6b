package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// spellings are names by their lower case, each spelling with the first place where it is declared.
type spellings map[string]map[string]string

func (s spellings) add(name, where string) {
	if name == "_" || name == "" {
		return
	}
	lower := strings.ToLower(name)
	if s[lower] == nil {
		s[lower] = make(map[string]string)
	}
	if s[lower][name] == "" {
		s[lower][name] = where
	}
}

// clashes returns one breach for each group of names that differ only by case.
func (s spellings) clashes(what string) []breach {
	var found []breach
	for _, lower := range sortedKeys(s) {
		if names := slices.Sorted(maps.Keys(s[lower])); len(names) > 1 {
			found = append(found, breach{s[lower][names[len(names)-1]], fmt.Sprintf("%s %s differ only by case: name one after what it does", what, strings.Join(names, " and "))})
		}
	}
	return found
}

// nearlyEqualNames finds names of one package that differ only by case. A reader, and a search that ignores case, takes
// one for the other. It compares:
//
//   - names at package level with each other,
//   - methods of one type with each other,
//   - unexported methods with the exported types of the package: a method persist and a type Persist.
//
// Two kinds of methods may have the name of a type. A getter returns a field of its receiver and does nothing else. A
// marker has no parameters, results or statements; it seals an interface. Fields are not compared, so that a method may
// be the getter of a field. Tests are not compared either.
func nearlyEqualNames(t *tree) []breach {
	var found []breach
	folders := t.folders()
	for _, folder := range sortedKeys(folders) {
		declared, types := make(spellings), make(map[string]string)
		methods := make(map[string]spellings) // by receiver
		bare := make(map[string]string)       // methods that are compared with types, and where each is
		method := func(receiver, name, where string, exempt bool) {
			if methods[receiver] == nil {
				methods[receiver] = make(spellings)
			}
			methods[receiver].add(name, where)
			if !exempt && bare[name] == "" {
				bare[name] = where
			}
		}
		for _, f := range folders[folder] {
			if f.isTest() || f.generated() {
				continue
			}
			for _, decl := range f.ast.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					if decl.Recv != nil {
						method(receiverName(decl), decl.Name.Name, t.at(decl), isGetter(decl) || isMarker(decl))
					} else {
						declared.add(decl.Name.Name, t.at(decl))
					}
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						switch spec := spec.(type) {
						case *ast.ValueSpec:
							for _, name := range spec.Names {
								declared.add(name.Name, t.at(name))
							}
						case *ast.TypeSpec:
							declared.add(spec.Name.Name, t.at(spec))
							types[spec.Name.Name] = t.at(spec)
							for _, m := range interfaceMethods(spec) {
								method(spec.Name.Name, m.Names[0].Name, t.at(m), isMarkerType(m.Type))
							}
						}
					}
				}
			}
		}
		found = append(found, declared.clashes(folder+":")...)
		for _, receiver := range sortedKeys(methods) {
			found = append(found, methods[receiver].clashes("methods of "+receiver)...)
		}
		for _, name := range sortedKeys(bare) {
			for _, typ := range sortedKeys(types) {
				if !ast.IsExported(name) && ast.IsExported(typ) && strings.EqualFold(name, typ) {
					found = append(found, breach{bare[name], fmt.Sprintf("method %s and type %s differ only by case: name the method after what it does", name, typ)})
				}
			}
		}
	}
	return found
}

// receiverName returns the name of the type that a method belongs to.
func receiverName(fn *ast.FuncDecl) string {
	typ := fn.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

func interfaceMethods(spec *ast.TypeSpec) (methods []*ast.Field) {
	if i, ok := spec.Type.(*ast.InterfaceType); ok {
		for _, m := range i.Methods.List {
			if len(m.Names) == 1 { // others are embedded
				methods = append(methods, m)
			}
		}
	}
	return methods
}

// isMarker reports whether a method does and returns nothing, and so can only seal an interface.
func isMarker(fn *ast.FuncDecl) bool {
	return isMarkerType(fn.Type) && fn.Body != nil && len(fn.Body.List) == 0
}

func isMarkerType(typ ast.Expr) bool {
	fn, ok := typ.(*ast.FuncType)
	return ok && fn.Params.NumFields() == 0 && fn.Results.NumFields() == 0
}

// isGetter reports whether a method does nothing but return a field of its receiver.
func isGetter(fn *ast.FuncDecl) bool {
	if fn.Type.Params.NumFields() > 0 || fn.Body == nil || len(fn.Body.List) != 1 || len(fn.Recv.List[0].Names) != 1 {
		return false
	}
	ret, ok := fn.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return false
	}
	sel, ok := ret.Results[0].(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == fn.Recv.List[0].Names[0].Name
}

func TestNamesDifferByMoreThanCase(t *testing.T) {
	holds(t, nearlyEqualNames(repository(t)))
}

func TestNearlyEqualNamesAreCaught(t *testing.T) {
	for source, what := range map[string]string{
		"type Persist struct{}\nfunc persist() {}":                                    "Persist and persist",
		"var a, B = 1, 2\nconst b = 3":                                                "B and b",
		"type T struct{}\nfunc (T) Run() {}\nfunc (*T) run() {}":                      "methods of T Run and run",
		"type T[K any] struct{}\nfunc (T[K]) Run() {}\nfunc (*T[K]) run() {}":         "methods of T Run and run",
		"type Persist struct{}\ntype T struct{}\nfunc (T) persist(n int) {}":          "method persist and type Persist",
		"type Event interface{ event(int) }":                                          "method event and type Event",
		"type I interface{ Run(); run() }":                                            "methods of I Run and run",
		"type Term int\ntype T struct{ n Term }\nfunc (t T) term() Term { return 0 }": "method term and type Term",
	} {
		catches(t, nearlyEqualNames(example(t, "a/x.go", "package a\n\n"+source+"\n")), "a/x.go", what)
	}
	catches(t, nearlyEqualNames(example(t, "a/x.go", "package a\n\nvar x int\n", "a/y.go", "package a\n\nvar X int\n")), "a/", "X and x")
	holds(t, nearlyEqualNames(example(t,
		"a/x.go", `package a

type Event interface{ event() }

type One struct{ name string; event Event }

func (One) event() {}

func (o One) Name() string { return o.name }

type Persist struct{ Event }

func (p Persist) persist() { }

func (p Persist) Run() { run := 1; _ = run }

type rate int

func (p Persist) Rate(n int) rate { return rate(n) }

type Other struct{ persist *Persist }

func (o *Other) Persist() *Persist { return o.persist }

func init() {}
`,
		"a/y.go", "package a\n\nfunc init() {}\n\nfunc other2(Run int) {}\n",
		"a/x_test.go", "package a\n\nfunc one() {}\n\nfunc EVENT() {}\n",
		"a/x.pb.go", "package a\n\nfunc one() {}\n",
		"b/x.go", "package b\n\nvar one int\n")))

}

// codeInName finds a code in the name of a test: a capital letter and digits that begin a word.
var codeInName = regexp.MustCompile(`(?:^(?:Test|Benchmark|Fuzz|Example)|[a-z0-9_])([A-Z])[1-9][0-9]?[a-z]?(?:[A-Z_]|$)`)

// codedTests finds tests, benchmarks, examples and fuzz targets whose names carry a code of a declared family.
func codedTests(t *tree) []breach {
	var found []breach
	for _, f := range t.files {
		if !f.isTest() {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !testFunction.MatchString(fn.Name.Name) {
				continue
			}
			for _, match := range codeInName.FindAllStringSubmatch(fn.Name.Name, -1) {
				if codeFamilies[match[1]] != "" {
					found = append(found, breach{t.at(fn), fn.Name.Name + " is named by a code: name the fact that it checks, and cite the code and its page in the comment"})
					break
				}
			}
		}
	}
	return found
}

var testFunction = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)([A-Z0-9_]|$)`)

func TestTestsAreNamedByFacts(t *testing.T) {
	holds(t, codedTests(repository(t)))
}

func TestCodesInTestNamesAreCaught(t *testing.T) {
	testing := func(name string) []breach {
		return codedTests(example(t, "a/x_test.go", "package a\n\nfunc "+name+"() {}\n"))
	}
	for _, name := range []string{"TestT1", "TestG4Expire", "TestB20HolderKnows", "TestE3bALeader", "BenchmarkT1", "FuzzT1Codec", "TestHoldersKeepT1", "TestAll_T1"} {
		catches(t, testing(name), "a/x_test.go:3", name+" is named by a code")
	}
	for _, name := range []string{"TestHTTP2", "TestV3Lock", "TestSHA256", "TestT", "TestTTL1", "TestEd25519", "TestN1", "Testing", "newT1", "TestThe1", "TestA1B"} {
		holds(t, testing(name))
	}
	holds(t, codedTests(example(t, "a/x.go", "package a\n\nfunc TestT1() {}\n")))
}
