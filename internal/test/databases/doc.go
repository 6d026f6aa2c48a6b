// Package databases starts database servers for tests: those that are installed on this machine, each on a
// socket or a port of its own, in a folder that goes with the test.
//
// It is for tests only. It installs nothing: where a server is absent the test is skipped with one line that
// says so, unless the environment variable LEASEKEEPER_TEST_REQUIRE names it ("postgres,mariadb"), which makes
// it a failure.
//
// How it works: a server is a process of the test. It runs as nobody if the test runs as root, because servers
// refuse that. It is killed when the test has ended, and on Linux also when the test's process dies. With a
// TestMain that calls [Main] the tests of a binary share one server of each kind, with databases of their own.
package databases
