package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	_ "github.com/leasekeeper/leasekeeper/backend/etcd"     // etcd:// and etcds://
	_ "github.com/leasekeeper/leasekeeper/backend/mongodb"  // mongodb:// and mongodb+srv://
	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // postgres:// and postgresql://
	_ "github.com/leasekeeper/leasekeeper/backend/remote"   // leasekeeper:// and leasekeepers://
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"   // sqlite:
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// Flags are the flags of all commands that work with names in a store.
type Flags struct {
	settings.Names
	Timeout time.Duration
	Output  string
}

// Register registers the flags, --store, and the settings with these keys.
func (f *Flags) Register(cmd *cobra.Command, keys ...string) {
	settings.RegisterNames(cmd.Flags(), append(keys, "store")...)
	cmd.Flags().DurationVar(&f.Timeout, "timeout", settings.DefaultTimeout, "how long to wait for the store's answers")
	cmd.Flags().StringVarP(&f.Output, "output", "o", console.Table, "`table` or json")
}

// Complete resolves the settings and checks the flags.
func (f *Flags) Complete(cmd *cobra.Command) error {
	if err := f.CompleteExceptStore(cmd); err != nil {
		return err
	}
	return f.ChooseStore(cmd.ErrOrStderr())
}

// CompleteExceptStore is [Flags.Complete] without a choice of the store: if the user names none, the store stays empty.
func (f *Flags) CompleteExceptStore(cmd *cobra.Command) (err error) {
	if f.Names, err = settings.LoadNames(cmd.Flags(), os.Environ()); err != nil {
		return err
	}
	if f.Timeout <= 0 {
		return command.WrongUsage("--timeout %v is not positive: write how long to wait, such as 5s", f.Timeout)
	}
	return command.CheckOutput(f.Output)
}

// With runs work with the chosen store. The context of work ends after --timeout.
func With(cmd *cobra.Command, f *Flags, work func(ctx context.Context, b backend.Backend) error) error {
	if err := f.Complete(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.Timeout)
	defer cancel()
	b, err := backend.Open(ctx, f.Store)
	if err != nil {
		return Explain("open the store", err)
	}
	defer b.Close(context.WithoutCancel(ctx)) // its error does not matter: no change is pending
	return NotAnAnswer(work(ctx, b))
}

// NotAnAnswer gives [command.ExitTrouble] to an error without an exit code, such as a failed write to standard output.
// Without it the exit code would be 1, which scripts read as an answer about the name.
func NotAnAnswer(err error) error {
	var known *command.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &command.Error{Code: command.ExitTrouble, Cause: err}
}

// Explain adds an exit code and advice to an error of the store of --store. doing is the text after "could not".
func Explain(doing string, err error) error {
	return ExplainWith(doing, err, "check that it is running, or choose another store with --store")
}

// WithoutPrefix returns the error without the prefix "leasekeeper: ", which command.Report adds.
func WithoutPrefix(err error) error { return unprefixed{err} }

// unprefixed is an error without the prefix "leasekeeper: ".
type unprefixed struct{ error }

func (e unprefixed) Error() string { return strings.TrimPrefix(e.error.Error(), "leasekeeper: ") }
func (e unprefixed) Unwrap() error { return e.error }

// ExplainWith is [Explain] with other advice for a store that does not answer.
func ExplainWith(doing string, err error, advice string) error {
	var known *command.Error
	if errors.As(err, &known) {
		return err
	}
	cause := fmt.Errorf("could not %s: %w", doing, unprefixed{err})
	switch {
	case errors.Is(err, leasekeeper.ErrUnknownOutcome):
		return &command.Error{Code: command.ExitUnreachable, Cause: cause}
	case errors.Is(err, leasekeeper.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return &command.Error{Code: command.ExitUnreachable, Cause: fmt.Errorf("%w; %s", cause, advice)}
	case errors.Is(err, leasekeeper.ErrInvalid):
		return &command.Error{Code: command.ExitUsage, Cause: cause}
	case errors.Is(err, leasekeeper.ErrHeld), errors.Is(err, leasekeeper.ErrLost), errors.Is(err, leasekeeper.ErrPinned), errors.Is(err, leasekeeper.ErrStale):
		return &command.Error{Code: command.ExitFailed, Cause: cause}
	case errors.Is(err, leasekeeper.ErrUnauthenticated):
		cause = fmt.Errorf("%w; write the user and its password into the URL of the store, as USER:PASSWORD@ before the host", cause)
	case errors.Is(err, leasekeeper.ErrDenied):
		cause = fmt.Errorf("%w; the user lacks a right over the name: `leasekeeper role grant` gives it", cause)
	}
	return &command.Error{Code: command.ExitTrouble, Cause: cause}
}

// NameAndToken reads the arguments NAME TOKEN. With optional, TOKEN may be missing; then the token is 0.
func NameAndToken(optional bool, args []string) (string, leasekeeper.Token, error) {
	if err := CheckedName(args[0]); err != nil {
		return "", 0, err
	}
	if optional && len(args) == 1 {
		return args[0], 0, nil
	}
	t, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil || t == 0 {
		return "", 0, command.WrongUsage("%q is not a token: write the number that `leasekeeper acquire` printed, or the value of %s", args[1], settings.TokenVariable)
	}
	return args[0], leasekeeper.Token(t), nil
}

// OneName accepts exactly one argument, which is a name.
func OneName(cmd *cobra.Command, args []string) error {
	if err := command.Exactly(1, "one name")(cmd, args); err != nil {
		return err
	}
	return CheckedName(args[0])
}

// Resume renews the lease that holds the name under the token t, or under any token if t is 0. The holder stays the same.
func Resume(ctx context.Context, b backend.Backend, name string, t leasekeeper.Token) (backend.Lease, backend.Grant, error) {
	resumer, err := backend.Can[backend.Resumer](b)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	info, err := b.Get(ctx, name)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	if t == 0 {
		t = info.Token
	}
	if !info.Held || info.Token != t {
		return nil, backend.Grant{}, command.Failed("%s", NotHeld(info, t))
	}
	return resumer.Resume(ctx, name, t, info.Holder)
}

// NotHeld returns the reason why a token does not hold a name.
func NotHeld(info backend.Info, t leasekeeper.Token) string {
	switch {
	case info.Held && info.Token > t:
		return fmt.Sprintf("%s has a new holder: token %d was replaced by %d (%s)", info.Name, t, info.Token, info.Holder)
	case info.Held:
		return fmt.Sprintf("%s is held under token %d by %s; token %d was never issued", info.Name, info.Token, info.Holder, t)
	case t == 0:
		return fmt.Sprintf("nobody holds %s", info.Name)
	}
	return fmt.Sprintf("nobody holds %s: the lease with token %d has ended", info.Name, t)
}
