// Package console prints the output of the commands: lines, tables and JSON.
//
// It escapes control characters, because names, holders and errors come from other programs and a terminal would obey
// them. The other packages of the command print nothing themselves, and a test enforces that. The package decides
// nothing about the content.
package console
