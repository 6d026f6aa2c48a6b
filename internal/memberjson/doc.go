// Package memberjson owns the JSON in which the members of a cluster and the records of the audit log are shown to programs:
// by the commands and by the web console.
//
// Field names are part of the interface: a version may add some, but renames none. A field that a member does not tell is
// missing or has its zero value. The package asks no server.
package memberjson
