// Package pageprogram checks the programs on a page: whether they compile, and whether they take turns.
//
// It promises that a test fails if a page shows no program, or one that `go vet` refuses in the module of the test.
// A program is a Go block of the page that begins with "package main". [Vet] checks the first one. [Build] compiles all
// of them, and refuses a page with any other block of Go. [Resolve] checks that the first one finds what it imports in an
// empty module, by the commands of the page. [Shows] checks the other blocks: each must be a part of a file of the test.
//
// A [Fleet] runs compiled programs as processes. Each of them has a job that begins and ends when the test says so, and
// the fleet notices if two jobs run at the same time.
//
// It is linked into no program.
package pageprogram
