package login

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultOption is the default of --auth-token.
const DefaultOption = "simple"

// Options say which tokens a server issues, as --auth-token does. Make them with [ParseOptions].
type Options struct {
	JWT *JWTOptions // nil for simple tokens
}

// JWTOptions are the options of JSON Web Tokens.
type JWTOptions struct {
	// PublicKey and PrivateKey are files in PEM form. Tokens are verified with all keys of the first, and with the public
	// key of the second. Without a private key, this server issues none. With HMAC, the private key is a file of random
	// bytes, and the other does not matter.
	PublicKey, PrivateKey string
	TTL                   time.Duration

	method jwt.SigningMethod
}

// optionNames are the names of the options behind "jwt".
var optionNames = []string{"sign-method", "pub-key", "priv-key", "ttl"}

// ParseOptions parses the value of --auth-token, which is that of etcd: "simple", or "jwt" with options.
func ParseOptions(text string) (Options, error) {
	kind, rest, _ := strings.Cut(text, ",")
	given, err := splitOptions(rest)
	switch {
	case err != nil:
		return Options{}, err
	case kind == "simple" && len(given) > 0:
		return Options{}, errors.New("--auth-token: simple has no options: the time for which tokens last is --auth-token-ttl")
	case kind == "simple":
		return Options{}, nil
	case kind != "jwt":
		return Options{}, fmt.Errorf("--auth-token is %q: give simple, or jwt,sign-method=ES256,pub-key=FILE,priv-key=FILE,ttl=10m", text)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(optionNames, name) {
			return Options{}, fmt.Errorf("--auth-token: there is no option %q: the options of jwt are %s", name, strings.Join(optionNames, ", "))
		}
	}
	o := &JWTOptions{PublicKey: given["pub-key"], PrivateKey: given["priv-key"], TTL: DefaultTTL}
	if text := given["ttl"]; text != "" {
		if o.TTL, err = time.ParseDuration(text); err != nil || o.TTL < time.Second {
			return Options{}, fmt.Errorf("--auth-token: ttl is %q: give a length of time from 1s up, as in ttl=10m", text)
		}
	}
	if o.method = signMethod(given["sign-method"]); o.method == nil {
		return Options{}, fmt.Errorf("--auth-token: sign-method is %q: give one of %s", given["sign-method"], strings.Join(methodNames(), ", "))
	}
	return Options{JWT: o}, nil
}

// Check returns what is wrong with the value of --auth-token, and with a cost of bcrypt.
func Check(token string, cost int) error {
	_, err := ParseOptions(token)
	if cost < MinCost || cost > MaxCost {
		err = errors.Join(err, fmt.Errorf("--bcrypt-cost is %d, not between %d and %d", cost, MinCost, MaxCost))
	}
	return err
}

// splitOptions splits "name=value" pairs.
func splitOptions(text string) (map[string]string, error) {
	given := make(map[string]string)
	if text == "" {
		return given, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--auth-token: %q is not of the form name=value", pair)
		}
		if _, twice := given[name]; twice {
			return nil, fmt.Errorf("--auth-token: %s is given twice", name)
		}
		given[name] = value
	}
	return given, nil
}

// methodNames returns the names of the methods that can be used. "none" is not among them.
func methodNames() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(jwt.GetAlgorithms())), func(name string) bool { return signMethod(name) == nil })
}

// signMethod returns the method with a name; nil if it cannot be used.
func signMethod(name string) jwt.SigningMethod {
	switch m := jwt.GetSigningMethod(name).(type) {
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS, *jwt.SigningMethodECDSA, *jwt.SigningMethodEd25519, *jwt.SigningMethodHMAC:
		return m
	}
	return nil
}

// Open returns the tokens of a server. logins are for simple tokens.
func (o Options) Open(member Member, logins *Logins, log *slog.Logger) (Tokens, error) {
	if o.JWT != nil {
		return NewJWT(member, *o.JWT, log)
	}
	return NewSimple(member, logins), nil
}
