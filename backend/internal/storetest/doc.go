// Package storetest is what the tests of several stores do with them: they write records, remove them as an
// operator does, claim names, and look at errors.
//
// It promises nothing to anybody else, and ends a test in which anything goes wrong. Package claimtest, which is
// for everybody, has the suites.
package storetest
