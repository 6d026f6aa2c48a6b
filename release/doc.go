// Command release makes everything that a release of Leasekeeper consists of.
//
//	go run -C release . --out /tmp/dist
//
// It writes these files into one directory, and prints each with its size:
//
//   - programs for Linux, macOS and Windows, and archives of them with man pages, completions and licences
//   - packages for Debian and for systems with rpm
//   - a container image for Linux, as one OCI archive
//   - the manifest for Kubernetes and a formula for Homebrew
//   - a bill of materials (SPDX) that has each linked module with its licence
//   - the checksums of all of these
//
// The version is the tag of the commit, or that of --version.
//
// Two runs for one commit with one version of Go write the same bytes, wherever the repository lies and whenever they run.
// So no file has the time of the run, the name of the machine or a path of it: all times are that of the commit.
//
// It needs Go, Git and bash, and the network only for Go modules that the machine does not have yet. It changes nothing in
// the repository, sets no tag, and publishes nothing.
//
// It is a module of its own, so that users of the library do not download what makes packages.
package main
