// Package modules has the version of Vitess that the tests of package vitess build and run.
package modules
