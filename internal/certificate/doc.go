// Package certificate keeps what a program proves by certificates who it is, and knows others by, as read from files.
//
// It promises that files that change are used from the next handshake on, without a restart, and that files that are
// of no use change nothing: what was read before stays in force until they are, and the log is told once.
//
// How it works: a [Source] looks at the files' times and sizes when it is asked for what is in force, at most once
// a second. It owns no goroutine.
//
// It never decides who is trusted with what: its users make of it what connections are made with.
package certificate
