package runner

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// runFlags are the flags of `run`.
type runFlags struct {
	settings.Names
	wait         store.WaitFlags
	shell        string
	leftovers    string
	holder       string
	holdAtMost   string
	holdAtLeast  string
	once         string
	priority     int16
	noForeground bool
	withPassword bool

	// The values that complete derives from the flags.
	ttl   time.Duration
	most  time.Duration    // 0 if the tenure has no limit
	least time.Duration    // how long the name stays taken at least
	tick  leasekeeper.Tick // the zero Tick without --once
	terms supervise.Terms  // for the requested TTL, until the store grants another
	path  string
	args  []string
}

func newRun() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a name",
		Long: `Hold a name, run a command, and release the name: flock(1) across machines. leasekeeper renews the lease while the
command runs. If renewals fail for too long, it ends the command before another process can hold the name: SIGTERM
--kill-after before the lease ends, SIGKILL shortly before. A second process does this even if leasekeeper itself is
stopped or killed. Processes that the command leaves running are ended with it (see --leftovers).

Without --store, names are local: they live in a SQLite file in your state directory (~/.local/state/leasekeeper).
Before a NAME that begins with -, write another --: leasekeeper run -- -x -- COMMAND.

The command receives LEASEKEEPER_NAME, LEASEKEEPER_TOKEN, LEASEKEEPER_TTL_MS, LEASEKEEPER_HOLDER and LEASEKEEPER_STORE
in its environment. LEASEKEEPER_TOKEN is the fencing token: send it with every change. LEASEKEEPER_STORE has no
password unless --with-password is set, and LEASEKEEPER_PASSWORD is removed.

With --once TICK the command runs only if no process has completed that tick or a later one, and a tick is completed
when the command has ended with code 0. TICK is a number that grows, a time such as 2026-03-01T12:00:00Z, or minute,
hour or day for the present one in UTC on this machine. All ticks of a name must be of one kind. If the tick is completed
already, the exit code is 0.

The exit code is that of the command, 128 plus the number of the signal that killed it, or

    1  the name is not free (--nonblock, --wait; --conflict-exit-code chooses another code)
   75  the lease was lost or about to be lost, or --hold-at-most has passed, and the command was stopped
  125  leasekeeper failed, or was called incorrectly
  126  the command cannot be run
  127  the command was not found`,
		Example: `  leasekeeper run --store leasekeeper://leases.example.org/ jobs/nightly -- backup.sh /srv
  leasekeeper run --once day jobs/nightly -- backup.sh    # for cron, on each machine
  leasekeeper run jobs/nightly -c 'backup.sh | gzip >backup.gz'`,
		Args:                  flags.arguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, _ = operands(cmd, args)
			if err := flags.complete(cmd, args); err != nil {
				return asOwn(err)
			}
			return flags.run(cmd, args[0])
		},
	}
	settings.RegisterNames(cmd.Flags(), "store", "ttl", "kill-after", "on-lost")
	flags.wait.Register(cmd)
	cmd.Flags().StringVarP(&flags.shell, "command", "c", "", "run this `line` in a shell ($SHELL, or /bin/sh)")
	cmd.Flags().StringVar(&flags.leftovers, "leftovers", "end", "`what` to do with processes that the command leaves running: end them, or wait for them while holding the lease")
	cmd.Flags().StringVar(&flags.holder, "holder", "", "the holder's `id` (default: host, process and a random number)")
	cmd.Flags().StringVar(&flags.holdAtMost, "hold-at-most", "", "end the command after this `duration`, and then release the name (default: no limit)")
	cmd.Flags().StringVar(&flags.holdAtLeast, "hold-at-least", "", "keep the name taken until this `duration` after it was acquired, even if the command ends before")
	cmd.Flags().StringVar(&flags.once, "once", "", "run the command only if this `tick` is not completed: a number, a time, minute, hour or day")
	cmd.Flags().Int16Var(&flags.priority, "priority", 0, "come before waiters of a lower priority, a `number` from -32768 to 32767")
	cmd.Flags().BoolVar(&flags.noForeground, "no-foreground", false, "do not give the terminal to the command alone; for pipelines with a pager")
	cmd.Flags().BoolVar(&flags.withPassword, "with-password", false, "keep the store's password in the command's LEASEKEEPER_STORE")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return asOwn(command.WrongFlag(cmd, err)) })
	return cmd
}

// asOwn gives [command.ExitOwn] to errors of leasekeeper itself, so that they differ from exit codes of the command.
func asOwn(err error) error {
	var known *command.Error
	if err == nil || errors.As(err, &known) && (known.Busy || !slices.Contains([]int{command.ExitUsage, command.ExitUnreachable, command.ExitTrouble}, known.Code)) {
		return err
	}
	return &command.Error{Code: command.ExitOwn, Cause: err}
}

// storeFailed returns an error of the store with [command.ExitOwn]. The exit codes of other commands do not fit here:
// in `run`, code 1 means that the name is not free.
func storeFailed(doing string, err error) error {
	var known *command.Error
	if errors.As(err, &known) {
		return asOwn(err)
	}
	return &command.Error{Code: command.ExitOwn, Cause: store.Explain(doing, err)}
}

// operands returns NAME and the command without the -- between them, and the number of arguments before that --: -1 if
// there is none. A -- before NAME ends the flags, as for other programs, so that NAME may begin with -.
func operands(cmd *cobra.Command, args []string) ([]string, int) {
	dash := cmd.ArgsLenAtDash()
	if dash == 0 && len(args) > 1 && args[1] == "--" {
		return append(args[:1:1], args[2:]...), 1
	}
	return args, dash
}

// arguments checks NAME -- COMMAND..., or NAME alone with --command.
func (f *runFlags) arguments(cmd *cobra.Command, given []string) error {
	args, dash := operands(cmd, given)
	// A lone -- may only end the flags: before a NAME that begins with -, and with --command, where no COMMAND follows.
	if dash == 0 && len(args) > 0 && args[0] != "--" && (f.shell != "" || strings.HasPrefix(args[0], "-")) {
		dash = -1
	}
	var err error
	switch {
	case len(args) == 0 || dash == 0:
		err = command.WrongUsage("no name is given: write `%s NAME -- COMMAND`", cmd.CommandPath())
	case f.shell != "" && len(args) > 1:
		err = command.WrongUsage("--command runs a line in a shell and takes no further arguments: write them into the line")
	case f.shell == "" && dash < 0 && len(args) > 1:
		err = command.WrongUsage("write -- before the command: `%s %s -- %s`", cmd.CommandPath(), operand(args[0]), args[1])
	case f.shell == "" && len(args) == 1:
		err = command.WrongUsage("no command is given: write `%s %s -- COMMAND`, or --command LINE to run a line in a shell", cmd.CommandPath(), operand(args[0]))
	case dash > 1:
		err = command.WrongUsage("unexpected argument %q: write one name, then --, then the command", args[1])
	default:
		err = store.CheckedName(args[0])
	}
	return asOwn(err)
}

// operand returns a name as a command line needs it: after -- if it would be a flag.
func operand(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + name
	}
	return name
}

// complete resolves the settings and checks them before the command contacts the store.
func (f *runFlags) complete(cmd *cobra.Command, args []string) (err error) {
	if f.Names, err = settings.LoadNames(cmd.Flags(), os.Environ()); err != nil {
		return err
	}
	if err := f.wait.Complete(); err != nil {
		return err
	}
	if f.ttl, err = settings.ParseDuration("ttl", f.Names.TTL); err != nil {
		return err
	}
	if f.holdAtMost != "" {
		if f.most, err = settings.ParseDuration("hold-at-most", f.holdAtMost); err != nil {
			return err
		}
	}
	if f.holdAtLeast != "" {
		if f.least, err = settings.ParseDuration("hold-at-least", f.holdAtLeast); err != nil {
			return err
		}
	}
	if f.once != "" {
		if f.tick, err = tickOf(f.once, time.Now()); err != nil {
			return err
		}
	}
	f.terms.Wait = f.leftovers == "wait"
	if !f.terms.Wait && f.leftovers != "end" {
		return command.WrongUsage("unknown --leftovers %q: write end or wait", f.leftovers)
	}
	if f.terms.OnLost, err = supervise.ParsePolicy(f.OnLost); err != nil {
		return command.WrongUsage("--on-lost: %v", err)
	}
	if err := f.agree(f.ttl); err != nil {
		return err
	}
	if err := f.find(args[1:]); err != nil {
		return err
	}
	return f.ChooseStore(cmd.ErrOrStderr())
}

// agree sets the terms for a lease with this TTL. It returns an error if the TTL is too short for them.
func (f *runFlags) agree(ttl time.Duration) error {
	f.terms.TTL = clock.DefaultDrift.RelyRemote(ttl)
	f.terms.KillAfter = supervise.DefaultKillAfter(ttl)
	if f.KillAfter != "" {
		var err error
		if f.terms.KillAfter, err = settings.ParseDuration("kill-after", f.KillAfter); err != nil {
			return err
		}
	}
	if err := f.terms.Validate(); err != nil {
		return command.WrongUsage("--ttl %v, --kill-after %v: %v (the holder relies on 98%% of a lease, because clocks differ)", ttl, f.terms.KillAfter.Round(time.Millisecond), err)
	}
	return nil
}

// find looks the program up before the wait for the name, so that a missing program is reported at once.
func (f *runFlags) find(words []string) error {
	if f.shell != "" {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		words = []string{shell, "-c", f.shell}
	}
	f.args = words
	path, err := exec.LookPath(words[0])
	switch {
	case err == nil:
	case errors.Is(err, exec.ErrDot): // PATH contains the current directory on purpose
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &command.Error{Code: command.ExitNotFound, Cause: &supervise.StartError{Path: words[0], Reason: "there is no such command"}}
	default:
		var why *exec.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		return &command.Error{Code: command.ExitCannotRun, Cause: &supervise.StartError{Path: words[0], Reason: err.Error()}}
	}
	f.path = path
	return nil
}

// card returns the text of the holder's card: the name of the program that runs.
func (f *runFlags) card() string {
	name := filepath.Base(f.path)
	if len(name) > maxCardName {
		name = name[:maxCardName]
	}
	return "run " + console.Readable([]byte(name))
}

// maxCardName is the largest number of bytes of a program name in a card.
const maxCardName = 60
