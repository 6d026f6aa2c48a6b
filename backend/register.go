package backend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Opener opens the backend of a URL with its scheme. The URL is valid. An unknown parameter in its query is
// [ErrInvalid].
type Opener func(ctx context.Context, u *url.URL) (Backend, error)

// registry has what the backends' packages register, by the schemes of their URLs.
var registry = struct {
	sync.Mutex
	openers    map[string]Opener
	inspectors map[string]Inspector
}{openers: make(map[string]Opener), inspectors: make(map[string]Inspector)}

// Register registers a backend for the scheme of its URLs. A backend's package calls it when it is imported.
// Register panics if the scheme is taken or invalid.
func Register(scheme string, open Opener) {
	if u, err := url.Parse(scheme + "://x"); err != nil || u.Scheme != scheme || scheme == "" || open == nil {
		panic(fmt.Sprintf("backend: %q cannot be registered: it is no scheme in lower case, or has no opener", scheme))
	}
	registry.Lock()
	defer registry.Unlock()
	if registry.openers[scheme] != nil {
		panic(fmt.Sprintf("backend: the scheme %q is registered twice", scheme))
	}
	registry.openers[scheme] = open
}

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	names := make([]string, 0, len(registry.openers))
	for name := range registry.openers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Open opens the backend of a URL. No error shows a secret of the URL: not its password, nor a part of it that
// could not be parsed. No error is [ErrUnknownOutcome]: what opening creates, the next opening creates if it is missing.
func Open(ctx context.Context, rawURL string) (Backend, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	registry.Lock()
	open := registry.openers[u.Scheme]
	registry.Unlock()
	if open == nil {
		return nil, fmt.Errorf("%w: no backend for %s: its package must be imported (there are: %s)",
			ErrInvalid, schemeOf(u), strings.Join(Schemes(), ", "))
	}
	b, err := open(ctx, u)
	if err != nil {
		return nil, hideSecrets(err, u)
	}
	return b, nil
}

// parseURL parses the URL of a store. Its error quotes nothing of it.
func parseURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The text of err quotes from the URL, and what follows an unescaped "/" in a password looks like a
		// port.
		return nil, fmt.Errorf("%w: the URL of a store cannot be read: write it like sqlite:/path, or leasekeeper://host:port/namespace, "+
			"and in a user name or password %%2F for /, %%3A for :, %%40 for @", ErrInvalid)
	}
	return u, nil
}

// schemeOf returns the scheme to show. The text before a colon that no slash follows may be a host or a user,
// so only what looks like a URL is quoted.
func schemeOf(u *url.URL) string {
	switch {
	case u.Scheme == "":
		return "a URL without a scheme"
	case u.Opaque != "":
		return "what was given in place of a URL"
	}
	return strconv.Quote(u.Scheme)
}

// hideSecrets returns err or, if its text shows a password of the URL, an error of the same kind without any
// text of its own.
func hideSecrets(err error, u *url.URL) error {
	text := err.Error()
	for _, secret := range secrets(u) {
		if strings.Contains(text, secret) || strings.Contains(text, url.QueryEscape(secret)) || strings.Contains(text, url.PathEscape(secret)) {
			return &hidden{scheme: u.Scheme, err: err}
		}
	}
	return err
}

func secrets(u *url.URL) []string {
	var found []string
	if password, ok := u.User.Password(); ok && password != "" {
		found = append(found, password)
		_, written, _ := strings.Cut(u.User.String(), ":")
		found = append(found, written)
	}
	for key, values := range u.Query() {
		for _, v := range values {
			if v != "" && isSecret(key, v) {
				found = append(found, v)
			}
		}
	}
	return found
}

// isSecret reports whether a parameter of a URL is a password or the like. In a URL of MongoDB, a session token
// of AWS is among the properties of the mechanism.
func isSecret(key, value string) bool {
	key, value = strings.ToLower(key), strings.ToLower(value)
	return strings.Contains(key, "pass") && key != "passfile" || strings.Contains(key, "secret") || strings.Contains(key, "token") ||
		key == "authmechanismproperties" && strings.Contains(value, "token")
}

// WithoutSecrets returns the URL of a store without its password and without secret parameters, for the
// environment of a program that need not know them. If rawURL is no URL, the result is empty.
func WithoutSecrets(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	if _, has := u.User.Password(); has {
		u.User = url.User(u.User.Username())
	}
	var kept []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		key, value, _ := strings.Cut(pair, "=")
		plainKey, badKey := url.QueryUnescape(key)
		plainValue, badValue := url.QueryUnescape(value)
		if badKey == nil && badValue == nil && !isSecret(plainKey, plainValue) {
			kept = append(kept, pair)
		}
	}
	u.RawQuery = strings.Join(kept, "&")
	return u.String()
}

// hidden is an error whose text must not be shown.
type hidden struct {
	scheme string
	err    error
}

func (h *hidden) Error() string {
	return fmt.Sprintf("the store %s: cannot be opened (the reason is not shown because it quotes a password)", h.scheme)
}

// Is keeps the kind. There is no Unwrap: code that prints the causes one by one would print the secret.
func (h *hidden) Is(target error) bool { return errors.Is(h.err, target) }
