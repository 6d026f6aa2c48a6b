// Package console prints what the commands say: lines, tables and JSON.
//
// It escapes everything that a terminal would obey, because names, holders and errors come from other programs. The
// other packages of the command print nothing by themselves, and a test refuses it. The package decides nothing about
// what is printed.
package console
