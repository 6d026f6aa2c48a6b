// Package pageprogram checks that the program on a page compiles.
//
// It promises that a test fails if a page shows no program, or one that `go vet` refuses in the module of the test.
// A program is the first Go block of the page that begins with "package main".
//
// It never runs the program, and is linked into no program.
package pageprogram
