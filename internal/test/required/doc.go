// Package required finds what a test needs of the machine, and decides whether a test without it is skipped or fails.
//
// It is for tests only, and installs nothing. A test whose need is absent is skipped with one line that says so. If the
// environment variable LEASEKEEPER_TEST_REQUIRE names the need ("postgres,curl"), the test fails instead. `.ci/run`
// installs all needs and names them, so there no test is skipped for want of one.
package required
