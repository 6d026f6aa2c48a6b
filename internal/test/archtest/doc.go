// Package archtest checks the rules of the house: which package may import what, where determinism ends, and
// how large packages, files and functions may be.
//
// It promises that a rule which is broken anywhere in the repository fails `go test ./internal/test/archtest` with
// the place and the rule. Each rule is tried on a small example that breaks it, so that a rule which can no
// longer fail is noticed too.
//
// Every package of the repository has a layer, in the table of docs/architecture.md. A package imports lower layers only,
// and has a bounded number of lines of code.
//
// How it works: the files of the repository are parsed (tree_test.go); rules about names, imports and
// lengths look at syntax only (imports_test.go, layers_test.go, shape_test.go); rules about determinism also look at types
// (purity_test.go), with export data from `go list -export`; rules about what gets linked ask
// `go list -deps` (links_test.go). Rules about pages read those (docs_test.go), and the one about what works of
// etcd's API holds the page against the descriptors of that API (compatibility_test.go). Codes of rules that comments and
// pages cite are looked up in the pages that define them (codes_test.go), and links of pages in the files and headings
// that they name (pagelinks_test.go). The package has nothing but tests.
//
// An unsorted range over a map is allowed in a deterministic file if the line, or the one above it, carries
// a comment "// order: " with the reason why the order does not matter.
//
// It never changes a file.
package archtest
