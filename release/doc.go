// Command release makes everything that a release of Leasekeeper consists of.
//
//	go run -C release . --out /tmp/dist
//
// It compiles the command for each system, and writes programs, packages and a file with their checksums into one
// directory. Then it prints each file with its size. The version is the tag of the commit, or that of --version.
//
// Two runs for one commit with one version of Go write the same bytes, wherever the repository lies and whenever they run.
// So no file has the time of the run, the name of the machine or a path of it: all times are that of the commit.
//
// It needs Go, Git and bash, and the network only for Go modules that the machine does not have yet. It changes nothing in
// the repository, sets no tag, and publishes nothing.
//
// It is a module of its own, so that users of the library do not download what makes packages.
package main
