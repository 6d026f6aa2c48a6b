// Package certificate holds a program's certificate and the authorities that it trusts, as read from files.
//
// It promises that changed files are used from the next handshake on, without a restart. Invalid files change
// nothing: the previous contents stay in use until the files are valid, and the error is logged once.
//
// How it works: a [Source] looks at the files when a caller asks for the current contents, at most once a second (package
// reread). It has no goroutine of its own; its caller runs [Source.EndRevoked].
//
// A list of revoked certificates is one of the files. With it, a Source refuses handshakes with a revoked certificate, and
// closes the open connections of a certificate that is revoked, within about two seconds of the change of the file. It knows the
// connections that its callers let it [Source.Track]. A list counts only if an authority in the file of authorities has signed
// it. It goes on counting after the time for which its issuer has announced the next one; a warning in the log says so.
//
// It never decides about trust in other ways: its callers make connections with the contents.
package certificate
