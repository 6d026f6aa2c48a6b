package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// namedCommands are the commands whose first argument is a name in a store, or the prefix of names.
var namedCommands = [][]string{
	{"run"}, {"acquire"}, {"renew"}, {"release"}, {"token", "check"}, {"ls"}, {"show"}, {"history"}, {"watch"}, {"transfer"},
	{"pin"}, {"unpin"}, {"revoke"}, {"mark"}, {"collect"},
}

// flagValues are the values of flags that have few. A flag of the same name has the same values in all commands.
var flagValues = map[string][]string{
	"color":      console.ColorValues,
	"output":     {console.Table, console.JSON},
	"on-lost":    {"term", "kill", "warn"},
	"leftovers":  {"end", "wait"},
	"log-format": {"text", "json"},
	"log-level":  {"debug", "info", "warn", "error"},
}

// storeFlags are the flags whose value is the URL of a store.
var storeFlags = []string{"store", "from", "to"}

// addCompletions tells the shells what the arguments and the flags of the commands below root may be.
func addCompletions(root *cobra.Command) {
	for _, path := range namedCommands {
		if cmd, _, err := root.Find(path); err == nil {
			cmd.ValidArgsFunction = completeName
		}
	}
	addFlagCompletions(root)
}

// completeName offers names for the first argument, and files for the command of `run`.
func completeName(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return store.CompleteNames(cmd, word), cobra.ShellCompDirectiveNoFileComp
	case cmd.Name() == "run":
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// offer returns a completion that offers those of the values that begin with the word.
func offer(values []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		var offered []string
		for _, v := range values {
			if strings.HasPrefix(v, word) {
				offered = append(offered, v)
			}
		}
		return offered, directive
	}
}

// addFlagCompletions registers the values of the flags of a command and of the commands below it. The errors of
// RegisterFlagCompletionFunc do not matter: the flags exist, and a persistent flag is registered once.
func addFlagCompletions(cmd *cobra.Command) {
	register := func(f *pflag.Flag) {
		if values := flagValues[f.Name]; values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, offer(values, cobra.ShellCompDirectiveNoFileComp))
		}
		for _, name := range storeFlags {
			if f.Name == name && f.Value.Type() == "string" {
				_ = cmd.RegisterFlagCompletionFunc(name, offer(settings.StorePrefixes(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
			}
		}
	}
	cmd.PersistentFlags().VisitAll(register)
	cmd.Flags().VisitAll(register)
	for _, sub := range cmd.Commands() {
		addFlagCompletions(sub)
	}
}
