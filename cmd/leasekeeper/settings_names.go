package main

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// nameSettings are those of the commands that deal with names in a store. They are found like the settings of
// `serve`, and may stand in the same file.
var nameSettings = []settingOf[nameOptions]{
	{"store", "", "`URL` of the store, such as leasekeeper://127.0.0.1:2379/ (env LEASEKEEPER_STORE; default a SQLite file of this user)", func(o *nameOptions) *string { return &o.store }},
	{"ttl", leasekeeper.DefaultTTL.String(), "the `duration` that the lease lives without renewal (env LEASEKEEPER_TTL)", func(o *nameOptions) *string { return &o.ttl }},
	{"kill-after", "", "the `duration` from SIGTERM to SIGKILL (env LEASEKEEPER_KILL_AFTER; default 5s, or a third of a shorter lease)", func(o *nameOptions) *string { return &o.killAfter }},
	{"on-lost", "term", "`what` to do when the lease is about to be lost: term (SIGTERM, then SIGKILL), kill, or warn (env LEASEKEEPER_ON_LOST)", func(o *nameOptions) *string { return &o.onLost }},
}

// loadNames takes each setting from the first place that has it.
func loadNames(flags *pflag.FlagSet, environ []string) (nameOptions, error) {
	return resolve(nameSettings, flags, environ)
}

type nameOptions struct {
	store     string
	ttl       string
	killAfter string
	onLost    string
}

// What a command that is run under a lease is told. The name and the store are settings too.
const (
	nameVariable   = "LEASEKEEPER_NAME"
	tokenVariable  = "LEASEKEEPER_TOKEN"
	ttlVariable    = "LEASEKEEPER_TTL_MS"
	holderVariable = "LEASEKEEPER_HOLDER"
	storeVariable  = "LEASEKEEPER_STORE"
)

var toldVariables = []string{tokenVariable, ttlVariable, holderVariable}

// serveEnviron leaves out what is told to a server that is run under a lease: its own name is not that of
// the lease.
func serveEnviron(environ []string) []string {
	told := func(entry string) bool { return strings.HasPrefix(entry, tokenVariable+"=") }
	if !slices.ContainsFunc(environ, told) {
		return environ
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, nameVariable+"=") })
}

// registerNames registers some of the settings.
func registerNames(flags *pflag.FlagSet, keys ...string) {
	for _, k := range nameSettings {
		if slices.Contains(keys, k.key) {
			flags.String(k.key, k.value, k.usage)
		}
	}
	registerConfig(flags)
}

// duration reads a setting.
func duration(key, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, wrongUsage("%q is not a length of time: write --%s 15s, or 500ms, or 2m", text, key)
	}
	if d <= 0 {
		return 0, wrongUsage("--%s %v is not positive: write --%s 15s, or 500ms, or 2m", key, d, key)
	}
	return d, nil
}

// chooseStore takes a file of this user if no store was named.
func (o *nameOptions) chooseStore(stderr io.Writer) (err error) {
	if o.store == "" {
		o.store, err = localStore(stderr)
		return err
	}
	return checkStore(o.store)
}

const exampleStore = "leasekeeper://127.0.0.1:2379/"

// checkStore refuses the URL of a store of a kind that is not built into this program. Nothing of it is shown: it
// may be a password that was written without what belongs before it.
func checkStore(rawURL string) error {
	u, err := url.Parse(rawURL)
	schemes := backend.Schemes()
	if err != nil || slices.Contains(schemes, u.Scheme) {
		return nil // or why it cannot be read is told when it is opened
	}
	for i, scheme := range schemes {
		if schemes[i] = scheme + "://"; scheme == "sqlite" {
			schemes[i] = scheme + ":"
		}
	}
	return wrongUsage("there is no such kind of store: the URL of one begins with %s or %s, like %s",
		strings.Join(schemes[:len(schemes)-1], ", "), schemes[len(schemes)-1], exampleStore)
}
