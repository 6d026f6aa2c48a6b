// Package storetest has helpers that the tests of several stores share. They write records, remove them as an
// operator does, claim names, and check errors.
//
// It is for the stores of this repository only. A helper fails the test if anything goes wrong. The public
// suites are in package claimtest.
package storetest
