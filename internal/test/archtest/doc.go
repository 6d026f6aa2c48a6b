// Package archtest checks the architecture rules: which package may import what, which packages are pure, and how large
// packages, files and functions may be. It also checks names, comments and pages.
//
// It promises that a broken rule anywhere in the repository fails `go test ./internal/test/archtest` with the place and
// the rule. Each rule is tried on a small example that breaks it, so that a rule which can no longer fail is noticed too.
//
// Every package of the repository has a layer, in the table of docs/architecture.md. A package imports only lower layers,
// and has a bounded number of lines of code.
//
// How it works: tree_test.go parses the files of the repository. These rules look at syntax only:
//
//   - imports and layers (imports_test.go, layers_test.go),
//   - sizes of packages, files and functions (shape_test.go),
//   - names that differ only by case, and names of tests (names_test.go),
//   - refused words in comments and pages (words_test.go),
//   - codes of rules, which comments and pages cite and one page defines (codes_test.go).
//
// The rules for pure packages also look at types, with export data from `go list -export` (purity_test.go). The rules
// about what a program links ask `go list -deps` (links_test.go). Other rules read pages: promises name their tests
// (docs_test.go), links lead somewhere (pagelinks_test.go), and docs/compatibility.md lists all that the descriptors of
// etcd's API have, and says what each refusal breaks and why (compatibility_test.go). The package has nothing but tests.
//
// An unsorted range over a map is allowed in a pure package if a comment "// order: " stands on the line or above it. The
// comment says why the order does not matter.
//
// It never changes a file.
package archtest
