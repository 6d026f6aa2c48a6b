// Package modules has the version of etcd's own client suites that the tests of package clients build and run.
package modules
