// Package certificate holds a program's certificate and the authorities that it trusts, as read from files.
//
// It promises that changed files are used from the next handshake on, without a restart. Invalid files change
// nothing: the previous contents stay in use until the files are valid, and the error is logged once.
//
// How it works: a [Source] looks at the files when a caller asks for the current contents, at most once a second (package
// reread). It has no goroutine.
//
// It never decides about trust: its callers make connections with the contents.
package certificate
