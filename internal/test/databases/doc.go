// Package databases starts database servers for tests. It uses the servers that are installed on this machine.
// Each has a socket or a port of its own, in a directory that is removed with the test.
//
// It is for tests only, and installs nothing. If a server is absent the test is skipped with one line that says
// so. If the environment variable LEASEKEEPER_TEST_REQUIRE names the server ("postgres,mariadb"), the test
// fails instead.
//
// How it works: a server is a child process of the test. It runs as the user nobody if the test runs as root,
// because servers refuse to run as root. It is killed when the test has ended, and on Linux also when the
// test's process dies. With a TestMain that calls [Main] the tests of a binary share one server of each kind,
// with databases of their own.
package databases
