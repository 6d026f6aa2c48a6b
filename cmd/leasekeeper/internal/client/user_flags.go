package client

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/credential"
)

// userFlags are the flags for the user that a command logs in as.
type userFlags struct{ name, passwordFile string }

func (f *userFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "user", "", "the `name` of the user to log in as, with its password in "+settings.PasswordVariable+" or --password-file (env "+settings.UserVariable+")")
	flags.StringVar(&f.passwordFile, "password-file", "", "`file` whose first line is the user's password (env "+settings.PasswordFileVariable+")")
}

// user returns the user to log in as, or nil if none is given.
func (f *userFlags) user() (*credential.User, error) {
	name, password, err := settings.User(f.name, f.passwordFile)
	switch {
	case err != nil:
		return nil, err
	case name != "":
		return credential.New(credential.Config{Name: name, Password: password}), nil
	case f.passwordFile != "":
		return nil, command.WrongUsage("--password-file is given without a user: add --user")
	}
	return nil, nil
}

// userAt returns the user to log in as at a place: the one of --user, or else the one in the URL of the store, or else the
// one of the environment. It returns nil if there is none.
func (f *userFlags) userAt(at place) (*credential.User, error) {
	if f.name == "" && f.passwordFile == "" && at.username != "" {
		return credential.New(credential.Config{Name: at.username, Password: at.password}), nil
	}
	return f.user()
}

// newPassword reads the password of a user that is added or changed, from standard input.
func newPassword(cmd *cobra.Command) (string, error) {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return "", command.WrongUsage("the new password comes from standard input, which is a terminal and would show it: write it into a file, and then `%s < FILE`", cmd.CommandPath())
		}
	}
	return settings.ReadPassword(in, "standard input")
}
