// Command serve is FerretDB behind the proxy of package ferrettest, as a process of its own, for those who measure
// leases on MongoDB's protocol.
//
// It takes one argument, an empty folder, in which it keeps what it is told as durably as FerretDB does by itself. It
// writes one line, its URI, and runs until its standard input ends, at the latest with the process that started it.
package main
