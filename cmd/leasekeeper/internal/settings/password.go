package settings

import (
	"bufio"
	"errors"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// maxPassword is the length limit of a password, in bytes. It is that of bcrypt.
const maxPassword = 72

// User returns the user of a server and its password. Empty arguments stand for the variables of the environment. Without a
// user, both results are empty.
func User(name, passwordFile string) (user, password string, err error) {
	if name == "" {
		name = os.Getenv(UserVariable)
	}
	if name == "" {
		return "", "", nil
	}
	if password, err = passwordOf(passwordFile); err == nil && password == "" {
		err = command.WrongUsage("the user %s has no password: write it into a file, and name the file with --password-file or %s", name, PasswordFileVariable)
	}
	return name, password, err
}

// passwordOf returns the password in a file. An empty path stands for the variables of the environment; without them, the
// password is empty.
func passwordOf(path string) (string, error) {
	if path == "" {
		path = os.Getenv(PasswordFileVariable)
	}
	if path == "" {
		return os.Getenv(PasswordVariable), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", command.WrongUsage("cannot read the password: %v; fix --password-file or %s", err, PasswordFileVariable)
	}
	defer f.Close()
	return ReadPassword(f, path)
}

// ReadPassword returns the first line of r. from names r in errors.
func ReadPassword(r io.Reader, from string) (string, error) {
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

// WithUser returns the URL of a store with the user and the password of the environment, if it names our server. A password
// in the URL comes first. The password of the environment belongs to the user of the environment, if there is one.
func WithUser(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || !slices.Contains([]string{remote.Scheme, remote.SchemeTLS}, u.Scheme) {
		return rawURL, nil // opening the store reports a URL that cannot be parsed
	}
	var password string
	if name := u.User.Username(); name == "" {
		if name, password, err = User("", ""); name != "" {
			u.User = url.UserPassword(name, password)
		}
	} else if _, has := u.User.Password(); !has && slices.Contains([]string{"", name}, os.Getenv(UserVariable)) {
		if password, err = passwordOf(""); password != "" {
			u.User = url.UserPassword(name, password)
		}
	}
	if err != nil || password == "" {
		return rawURL, err
	}
	return u.String(), nil
}
