package settings

import (
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// nameSettings are the settings of the commands about names in a store. They come from the same places as the settings
// of `serve`, and may be in the same file.
var nameSettings = []settingOf[Names]{
	{"store", "", "`URL` of the store, such as leasekeeper://127.0.0.1:2379/ (env LEASEKEEPER_STORE; default: a SQLite file in your state directory)", func(o *Names) *string { return &o.Store }},
	{"ttl", leasekeeper.DefaultTTL.String(), "the `duration` for which the lease lasts without renewal (env LEASEKEEPER_TTL)", func(o *Names) *string { return &o.TTL }},
	{"kill-after", "", "the `duration` from SIGTERM to SIGKILL (env LEASEKEEPER_KILL_AFTER; default: 5s, or a third of a shorter TTL)", func(o *Names) *string { return &o.KillAfter }},
	{"on-lost", "term", "`what` to do when the lease is about to be lost: term (SIGTERM, then SIGKILL), kill, or warn (env LEASEKEEPER_ON_LOST)", func(o *Names) *string { return &o.OnLost }},
}

// LoadNames returns the settings of a command about names, each from the first place that has it.
func LoadNames(flags *pflag.FlagSet, environ []string) (Names, error) {
	return resolve(nameSettings, flags, environ)
}

// Names holds the settings of the commands about names, as the user wrote them.
type Names struct {
	Store     string
	TTL       string
	KillAfter string
	OnLost    string
}

// The variables that `run` sets for its command. The name and the store are also variables of settings.
const (
	NameVariable   = "LEASEKEEPER_NAME"
	TokenVariable  = "LEASEKEEPER_TOKEN"
	TTLVariable    = "LEASEKEEPER_TTL_MS"
	HolderVariable = "LEASEKEEPER_HOLDER"
	StoreVariable  = "LEASEKEEPER_STORE"
)

// runVariables are the variables of `run` that are not settings.
var runVariables = []string{TokenVariable, TTLVariable, HolderVariable}

// serveEnviron removes LEASEKEEPER_NAME from the environment of a server that runs under `run`: there it is the name of
// the lease, not the name of the server.
func serveEnviron(environ []string) []string {
	isToken := func(entry string) bool { return strings.HasPrefix(entry, TokenVariable+"=") }
	if !slices.ContainsFunc(environ, isToken) {
		return environ
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, NameVariable+"=") })
}

// RegisterNames registers flags for the settings with these keys, and --config.
func RegisterNames(flags *pflag.FlagSet, keys ...string) {
	for _, k := range nameSettings {
		if slices.Contains(keys, k.key) {
			flags.String(k.key, k.value, k.usage)
		}
	}
	registerConfig(flags)
}

// ParseDuration parses the positive duration text of the setting key.
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

// ChooseStore checks the store and completes it by [WithUser], or chooses the local file of this user if none is set.
func (o *Names) ChooseStore(stderr io.Writer) (err error) {
	if o.Store == "" {
		o.Store, err = localStore(stderr)
		return err
	}
	if err = CheckStore(o.Store); err == nil {
		o.Store, err = WithUser(o.Store)
	}
	return err
}

// ExampleStore is the URL of a store for error messages.
const ExampleStore = "leasekeeper://127.0.0.1:2379/"

// CheckStore refuses a URL whose scheme no backend of this program has. The error does not quote the URL, which may
// contain a password; it quotes the scheme only if it suggests another.
func CheckStore(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil || slices.Contains(backend.Schemes(), u.Scheme) {
		return nil // opening the store reports a URL that cannot be parsed
	}
	begins := StorePrefixes()
	hint := command.DidYouMean(u.Scheme, backend.Schemes())
	if hint != "" {
		hint = " " + strconv.Quote(u.Scheme) + hint
	}
	return command.WrongUsage("the store has an unknown URL scheme%s: write a URL that begins with %s or %s, such as %s",
		hint, strings.Join(begins[:len(begins)-1], ", "), begins[len(begins)-1], ExampleStore)
}

// StorePrefixes returns what URLs of stores begin with: the schemes with what follows them.
func StorePrefixes() []string {
	prefixes := backend.Schemes()
	for i, scheme := range prefixes {
		if prefixes[i] = scheme + "://"; scheme == "sqlite" || scheme == "memory" {
			prefixes[i] = scheme + ":"
		}
	}
	return prefixes
}
