package command

import (
	"slices"

	"github.com/spf13/cobra"
)

// Groups are the groups of commands in the help of leasekeeper, in the order of the help. Each command of the program is in
// exactly one group, and a test checks that: a new command needs its name here.
var Groups = []Group{
	{"hold", "Hold names:", []string{"run", "acquire", "renew", "release", "token", "mark"}},
	{"look", "Look at names:", []string{"ls", "show", "history", "watch", "console", "demo", "doctor", "explain"}},
	{"intervene", "Intervene:", []string{"transfer", "revoke", "pin", "unpin"}},
	{"server", "Run a server:", []string{
		"serve", "status", "health", "member", "found", "transfer-leadership", "lease", "user", "role", "access", "audit",
		"snapshot", "restore", "recover", "import",
	}},
	{"databases", "Names in databases:", []string{"move", "collect", "floor", "schema"}},
	{"program", "This program:", []string{"help", "version", "manpages"}},
}

// Group is a group of commands in the help.
type Group struct {
	ID       string   // a word for the program
	Title    string   // the line above the commands
	Commands []string // their names, in any order: the help sorts them
}

// Arrange puts the commands of root into their groups. A command without a group is listed after the groups.
func Arrange(root *cobra.Command) {
	for _, g := range Groups {
		root.AddGroup(&cobra.Group{ID: g.ID, Title: g.Title})
	}
	for _, cmd := range root.Commands() {
		if i := slices.IndexFunc(Groups, func(g Group) bool { return slices.Contains(g.Commands, cmd.Name()) }); i >= 0 {
			cmd.GroupID = Groups[i].ID
		}
	}
}
