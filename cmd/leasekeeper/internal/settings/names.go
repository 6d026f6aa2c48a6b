package settings

import (
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// nameSettings are those of the commands that deal with names in a store. They are found like the settings of
// `serve`, and may stand in the same file.
var nameSettings = []settingOf[Names]{
	{"store", "", "`URL` of the store, such as leasekeeper://127.0.0.1:2379/ (env LEASEKEEPER_STORE; default: a SQLite file in your state directory)", func(o *Names) *string { return &o.Store }},
	{"ttl", leasekeeper.DefaultTTL.String(), "the `duration` for which the lease lasts without renewal (env LEASEKEEPER_TTL)", func(o *Names) *string { return &o.TTL }},
	{"kill-after", "", "the `duration` from SIGTERM to SIGKILL (env LEASEKEEPER_KILL_AFTER; default: 5s, or a third of a shorter TTL)", func(o *Names) *string { return &o.KillAfter }},
	{"on-lost", "term", "`what` to do when the lease is about to be lost: term (SIGTERM, then SIGKILL), kill, or warn (env LEASEKEEPER_ON_LOST)", func(o *Names) *string { return &o.OnLost }},
}

// LoadNames takes each setting from the first place that has it.
func LoadNames(flags *pflag.FlagSet, environ []string) (Names, error) {
	return resolve(nameSettings, flags, environ)
}

type Names struct {
	Store     string
	TTL       string
	KillAfter string
	OnLost    string
}

// What a command that is run under a lease is told. The name and the store are settings too.
const (
	NameVariable   = "LEASEKEEPER_NAME"
	TokenVariable  = "LEASEKEEPER_TOKEN"
	TTLVariable    = "LEASEKEEPER_TTL_MS"
	HolderVariable = "LEASEKEEPER_HOLDER"
	StoreVariable  = "LEASEKEEPER_STORE"
)

var toldVariables = []string{TokenVariable, TTLVariable, HolderVariable}

// serveEnviron leaves out what is told to a server that is run under a lease: its own name is not that of
// the lease.
func serveEnviron(environ []string) []string {
	told := func(entry string) bool { return strings.HasPrefix(entry, TokenVariable+"=") }
	if !slices.ContainsFunc(environ, told) {
		return environ
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, NameVariable+"=") })
}

// RegisterNames registers some of the settings.
func RegisterNames(flags *pflag.FlagSet, keys ...string) {
	for _, k := range nameSettings {
		if slices.Contains(keys, k.key) {
			flags.String(k.key, k.value, k.usage)
		}
	}
	registerConfig(flags)
}

// ParseDuration reads a setting.
func ParseDuration(key, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, command.WrongUsage("%q is not a duration: write --%s 15s, or 500ms, or 2m", text, key)
	}
	if d <= 0 {
		return 0, command.WrongUsage("--%s %v is not positive: write --%s 15s, or 500ms, or 2m", key, d, key)
	}
	return d, nil
}

// ChooseStore takes a file of this user if no store was named.
func (o *Names) ChooseStore(stderr io.Writer) (err error) {
	if o.Store == "" {
		o.Store, err = localStore(stderr)
		return err
	}
	return CheckStore(o.Store)
}

const ExampleStore = "leasekeeper://127.0.0.1:2379/"

// CheckStore refuses the URL of a store of a kind that is not built into this program. Nothing of it is shown: it
// may be a password that was written without what belongs before it.
func CheckStore(rawURL string) error {
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
	return command.WrongUsage("the store has an unknown URL scheme: write a URL that begins with %s or %s, such as %s",
		strings.Join(schemes[:len(schemes)-1], ", "), schemes[len(schemes)-1], ExampleStore)
}
