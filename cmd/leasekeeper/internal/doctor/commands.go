package doctor

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

const (
	// defaultInterval is how long the clocks are compared by default, and longestInterval how long at most.
	defaultInterval, longestInterval = 2 * time.Second, 10 * time.Minute
)

// Commands returns the command of this package. version is that of this program.
func Commands(version string) []*cobra.Command { return []*cobra.Command{newDoctor(version)} }

func newDoctor(version string) *cobra.Command {
	var flags store.Flags
	asJSON := false
	interval := defaultInterval
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check clocks, disk, ports, certificates and the store, and say what to fix",
		Long: `Check this machine and a store, and print for each check what was found and, unless it is good, how to fix it. The
command changes nothing in the store.

It always checks the clocks and the store of --store. With --data-dir, or with settings of "leasekeeper serve" in the file
of --config or in the environment, it also checks the machine as one that runs a server: the disk, the ports, the addresses,
the certificates and the limits. If that server runs, it is the store to check, unless --store names another one.

The exit code is 1 if a check has failed, also because the store does not answer. Warnings do not count.`,
		Example: `  leasekeeper doctor
  leasekeeper doctor --store leasekeeper://10.0.0.7:2379/
  leasekeeper doctor --config /etc/leasekeeper/server.yaml -o json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval <= 0 || interval > longestInterval {
				return command.WrongUsage("--clock-interval is %v: write a duration of at most %v, such as 2s", interval, longestInterval)
			}
			if asJSON {
				flags.Output = console.JSON
			}
			return diagnose(cmd, &flags, version, interval)
		},
	}
	flags.Register(cmd)
	settings.RegisterDataDir(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as with -o json")
	cmd.Flags().DurationVar(&interval, "clock-interval", interval, "the `duration` for which to compare the clocks; a longer one measures their rates more exactly")
	return cmd
}

// diagnose makes all checks and prints the report.
func diagnose(cmd *cobra.Command, flags *store.Flags, version string, interval time.Duration) error {
	if err := flags.CompleteExceptStore(cmd); err != nil {
		return err
	}
	if flags.Store != "" {
		if err := settings.CheckStore(flags.Store); err != nil {
			return err
		}
	}
	ctx := cmd.Context()
	m, err := loadMachine(ctx, cmd.Flags(), os.Environ(), version)
	if err != nil {
		return err
	}
	step := clockStep()
	began, from := time.Now(), readClocks(step)
	checks, running := []Check{checkProgram(version)}, ""
	if m != nil {
		machine, server := m.examine(ctx, began)
		checks, running = append(checks, machine...), server
	}
	checks = append(checks, checkChosenStore(ctx, flags, m, running)...)
	if err := waitUntil(ctx, began.Add(interval)); err != nil {
		return err
	}
	rates, known := ratesOf(from, readClocks(step))
	clocks := append(checkClockSystem(m != nil), judgeRate(rates, known, m.drift()), judgeWall(rates, known))
	report := Report{Checks: append(clocks, checks...)}
	report.Verdict = worst(report.Checks)
	if err := report.print(cmd.OutOrStdout(), flags.Output == console.JSON); err != nil {
		return store.NotAnAnswer(err)
	}
	if report.Verdict == Fail {
		return &command.Error{Code: command.ExitFailed} // the reasons are printed
	}
	return nil
}

// checkChosenStore checks the store of --store. Without one it checks the server of this machine, if it runs, or the local store.
// It creates nothing.
func checkChosenStore(ctx context.Context, flags *store.Flags, m *machine, running string) []Check {
	const name = "store"
	url := flags.Store
	switch {
	case url == "" && running != "":
		url = running
	case url == "" && m != nil:
		return []Check{skipped(name, "give --store %s to check a running server", m.exampleStore())}
	case url == "":
		local, exists, err := settings.DefaultStore()
		if err != nil {
			return []Check{bad(Fail, name, "there is no default store", "%v", err)}
		}
		if !exists {
			return []Check{skipped(name, "%s does not exist yet: the first claim creates it", strings.TrimPrefix(local, "sqlite:"))}
		}
		url = local
	}
	full, err := settings.WithUser(url)
	if err != nil {
		return []Check{bad(Fail, name, "the user cannot be used", "%v", err)}
	}
	limited, cancel := context.WithTimeout(ctx, flags.Timeout)
	defer cancel()
	return checkStore(limited, full, time.Now())
}

// waitUntil waits for a moment, or until ctx ends.
func waitUntil(ctx context.Context, moment time.Time) error {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
