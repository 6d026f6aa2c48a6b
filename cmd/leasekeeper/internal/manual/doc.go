// Package manual owns the command that writes man pages. It makes a page of each command from the texts and flags that
// --help shows, so that the pages never differ from the program. It decides nothing about leases.
package manual
