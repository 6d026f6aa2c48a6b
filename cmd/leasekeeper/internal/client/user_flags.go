package client

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/credential"
)

// maxPassword is the length limit of a password, in bytes. It is that of bcrypt.
const maxPassword = 72

// userFlags are the flags for the user that a command logs in as.
type userFlags struct{ name, passwordFile string }

func (f *userFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "user", "", "the `name` of the user to log in as, with its password in "+settings.PasswordVariable+" or --password-file (env "+settings.UserVariable+")")
	flags.StringVar(&f.passwordFile, "password-file", "", "`file` whose first line is the user's password (env "+settings.PasswordFileVariable+")")
}

// user returns the user to log in as, or nil if none is given.
func (f *userFlags) user() (*credential.User, error) {
	name, file := f.name, f.passwordFile
	if name == "" {
		name = os.Getenv(settings.UserVariable)
	}
	if file == "" {
		file = os.Getenv(settings.PasswordFileVariable)
	}
	if name == "" {
		if f.passwordFile != "" {
			return nil, command.WrongUsage("--password-file is given without a user: add --user")
		}
		return nil, nil
	}
	password := os.Getenv(settings.PasswordVariable)
	if file != "" {
		var err error
		if password, err = readPasswordFile(file); err != nil {
			return nil, err
		}
	}
	if password == "" {
		return nil, command.WrongUsage("the user %s has no password: write it into a file, and name the file with --password-file", name)
	}
	return credential.New(credential.Config{Name: name, Password: password}), nil
}

func readPasswordFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", command.WrongUsage("cannot read the password: %v; fix --password-file", err)
	}
	defer f.Close()
	return firstLine(f, path)
}

// firstLine reads a password.
func firstLine(r io.Reader, from string) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxPassword+2)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", command.WrongUsage("cannot read the password from %s: %v", from, err)
	}
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	switch {
	case line == "":
		return "", command.WrongUsage("the first line of %s is empty: write the password there", from)
	case len(line) > maxPassword:
		return "", command.WrongUsage("the password in %s has more than %d bytes: choose a shorter one", from, maxPassword)
	}
	return line, nil
}

// newPassword reads the password of a user that is added or changed, from standard input.
func newPassword(cmd *cobra.Command) (string, error) {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return "", command.WrongUsage("the new password comes from standard input, which is a terminal and would show it: write it into a file, and then `%s < FILE`", cmd.CommandPath())
		}
	}
	return firstLine(in, "standard input")
}
