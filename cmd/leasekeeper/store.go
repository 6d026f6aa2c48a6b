package main

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
)

// storeFlags are what the commands share that ask a store about names.
type storeFlags struct {
	nameOptions
	timeout time.Duration
	output  string
}

// register registers the flags, and those of the settings named.
func (f *storeFlags) register(cmd *cobra.Command, settings ...string) {
	registerNames(cmd.Flags(), append(settings, "store")...)
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to wait for answers")
	cmd.Flags().StringVarP(&f.output, "output", "o", outputTable, "`table` or json")
}

// complete finds the settings and checks what was given.
func (f *storeFlags) complete(cmd *cobra.Command) (err error) {
	if f.nameOptions, err = loadNames(cmd.Flags(), os.Environ()); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return wrongUsage("--timeout %v is not positive: write how long to wait, such as 5s", f.timeout)
	}
	if err := checkOutput(f.output); err != nil {
		return err
	}
	return f.chooseStore(cmd.ErrOrStderr())
}

// withStore runs a command's work with the chosen store.
func withStore(cmd *cobra.Command, f *storeFlags, work func(ctx context.Context, b backend.Backend) error) error {
	if err := f.complete(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	b, err := backend.Open(ctx, f.store)
	if err != nil {
		return explainStore("open the store", err)
	}
	defer b.Close(context.WithoutCancel(ctx)) // nothing is kept that closing could lose
	return notAnAnswer(work(ctx, b))
}

// notAnAnswer gives an error without an exit code, such as that of a full standard output, one that answers no question
// about a name. Code 1 would.
func notAnAnswer(err error) error {
	var known *exitError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &exitError{code: exitTrouble, cause: err}
}

// explainStore gives an error of the store of --store its exit code. doing completes "could not".
func explainStore(doing string, err error) error {
	return explainStores(doing, err, "see whether it is well, or choose another with --store")
}

// unprefixed is an error without the name of this program before it: report writes that.
type unprefixed struct{ error }

func (e unprefixed) Error() string { return strings.TrimPrefix(e.error.Error(), "leasekeeper: ") }
func (e unprefixed) Unwrap() error { return e.error }

// explainStores gives an error of a store its exit code. advice is for when no answer comes.
func explainStores(doing string, err error, advice string) error {
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	told := fmt.Errorf("could not %s: %w", doing, unprefixed{err})
	switch {
	case errors.Is(err, leasekeeper.ErrUnknownOutcome):
		return &exitError{code: exitUnreachable, cause: told}
	case errors.Is(err, leasekeeper.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return &exitError{code: exitUnreachable, cause: fmt.Errorf("%w; %s", told, advice)}
	case errors.Is(err, leasekeeper.ErrInvalid):
		return &exitError{code: exitUsage, cause: told}
	case errors.Is(err, leasekeeper.ErrHeld), errors.Is(err, leasekeeper.ErrLost), errors.Is(err, leasekeeper.ErrPinned), errors.Is(err, leasekeeper.ErrStale):
		return &exitError{code: exitFailed, cause: told}
	}
	return &exitError{code: exitTrouble, cause: told}
}

// nameAnd reads the arguments NAME TOKEN. The token may be left away if optional.
func nameAnd(optional bool, args []string) (string, leasekeeper.Token, error) {
	if err := checkedName(args[0]); err != nil {
		return "", 0, err
	}
	if optional && len(args) == 1 {
		return args[0], 0, nil
	}
	t, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil || t == 0 {
		return "", 0, wrongUsage("%q is not a token: write the number that `leasekeeper acquire` printed, or that is in %s", args[1], tokenVariable)
	}
	return args[0], leasekeeper.Token(t), nil
}

// oneName is for commands with one argument, which is a name.
func oneName(cmd *cobra.Command, args []string) error {
	if err := exactly(1, "one name")(cmd, args); err != nil {
		return err
	}
	return checkedName(args[0])
}

// tenancy finds the lease that holds the name under the token, or under whatever token if that is 0, and
// renews it. Its holder stays as it is.
func tenancy(ctx context.Context, b backend.Backend, name string, t leasekeeper.Token) (backend.Lease, backend.Grant, error) {
	adopter, err := backend.Can[backend.Adopter](b)
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
		return nil, backend.Grant{}, failed("%s", notHeld(info, t))
	}
	return adopter.Adopt(ctx, name, t, info.Holder)
}

// notHeld says why a token does not hold a name.
func notHeld(info backend.Info, t leasekeeper.Token) string {
	switch {
	case info.Held && info.Token > t:
		return fmt.Sprintf("%s has passed on: token %d was succeeded by %d, of %s", info.Name, t, info.Token, info.Holder)
	case info.Held:
		return fmt.Sprintf("%s is held under token %d by %s, and %d was never given out", info.Name, info.Token, info.Holder, t)
	case t == 0:
		return fmt.Sprintf("nobody holds %s", info.Name)
	}
	return fmt.Sprintf("nobody holds %s: the lease with token %d has ended", info.Name, t)
}
