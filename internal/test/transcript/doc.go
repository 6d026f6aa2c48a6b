// Package transcript plays the transcripts in a package's testdata. A transcript has commands to the package, each followed by
// its answer.
//
// It promises that every file is played as a test of its own, and that a testdata without files is a failure. With
// -rewrite it replaces the answers in the files by the present ones.
//
// How it works: datadriven reads the files and compares the answers; this package walks over the files, supplies the
// answer of commands without output, and parses arguments.
//
// It never knows what a command means.
package transcript
