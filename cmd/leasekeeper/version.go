package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// version is the version of this program. A release sets it with -ldflags "-X main.version=v1.2.3". If it is empty,
// programVersion takes the version that Go recorded at build time.
var version string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  leasekeeper version",
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return console.PrintLine(cmd.OutOrStdout(), "leasekeeper %s (%s, %s/%s)",
				programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
