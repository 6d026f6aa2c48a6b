// Package transcript plays the files of a package's testdata: conversations with what the package decides, in which the
// answer stands below each command.
//
// It promises that every file is played, as a test of its own, and that a testdata without files is a failure. With
// -rewrite the answers are written down as they are now.
//
// How it works: datadriven reads the files and compares the answers; this package adds what all transcripts share, which is
// the walk over the files, the answer of commands that have nothing to say, and the reading of arguments.
//
// It never knows what a command means.
package transcript
