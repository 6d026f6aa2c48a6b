package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// version is the version of this program. A release sets it with -ldflags "-X main.version=v1.2.3". If it is empty,
// programVersion takes the version that Go recorded at build time.
var version string

// commit is the commit that this program was built from. A release sets it with -ldflags "-X main.commit=…". If it is
// empty, programCommit takes the commit that Go recorded at build time.
var commit string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print the version of this program, the commit that it was built from, and the URL schemes of its backends.",
		Example: "  leasekeeper version",
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return console.PrintLines(cmd.OutOrStdout(), fmt.Sprintf("leasekeeper %s (%s, %s/%s)\ncommit %s\nbackends %s\n",
				programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, programCommit(), strings.Join(backend.Schemes(), " ")))
		},
	}
}

// programVersion returns the version of this program, or "devel" if it is not known.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// programCommit returns the commit of this program in hexadecimal digits, with "-dirty" if it was built with changes, or
// "unknown".
func programCommit() string {
	if commit != "" {
		return commit
	}
	id, suffix := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				id = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				suffix = "-dirty"
			}
		}
	}
	return id + suffix
}
