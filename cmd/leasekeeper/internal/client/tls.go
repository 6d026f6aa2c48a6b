package client

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// tlsFlags are the flags for TLS between a command and its server.
type tlsFlags struct {
	ca, cert, key string
	on            bool // whether to use TLS; complete sets it
}

func (f *tlsFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "cacert", "", "`file` with the certificate authorities to trust for the server (env "+settings.CAVariable+"; default: the system's)")
	flags.StringVar(&f.cert, "cert", "", "`file` with the certificate to show to the server (env "+settings.ClientCertVariable+")")
	flags.StringVar(&f.key, "key", "", "`file` with the certificate's key (env "+settings.ClientKeyVariable+")")
}

// complete fills in values from the environment, and returns the endpoint without its scheme. For an endpoint without
// a scheme it chooses TLS if there is a CA file or a certificate.
func (f *tlsFlags) complete(endpoint string) (string, error) {
	given := f.ca + f.cert + f.key
	for field, name := range map[*string]string{&f.ca: settings.CAVariable, &f.cert: settings.ClientCertVariable, &f.key: settings.ClientKeyVariable} {
		if *field == "" {
			*field = os.Getenv(name)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return "", command.WrongUsage("--cert and --key belong together: give both, or neither")
	}
	scheme, rest, found := strings.Cut(endpoint, "://")
	switch {
	case !found:
		f.on, rest = f.ca+f.cert != "", endpoint
	case scheme == "https":
		f.on = true
	case scheme != "http":
		return "", command.WrongUsage("%q is not an endpoint: write host:port, with https:// or http:// before it or without", endpoint)
	case given != "":
		return "", command.WrongUsage("%s means a connection without TLS: omit --cacert, --cert and --key, or write https://", endpoint)
	}
	return strings.TrimSuffix(rest, "/"), nil
}

// given reports whether the command line has one of the flags. complete adds values of the environment later.
func (f *tlsFlags) given() bool { return f.ca+f.cert+f.key != "" }

// config returns the configuration of TLS for the connection, or nil for a connection without TLS.
func (f *tlsFlags) config() (*tls.Config, error) {
	if !f.on {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, command.WrongUsage("cannot read the certificates to trust: %v; fix --cacert", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, command.WrongUsage("there is no certificate in %s: give --cacert a file in PEM form", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, command.WrongUsage("cannot use the certificate %s with the key %s: %v; fix --cert and --key", f.cert, f.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// tlsFailures maps parts of the error text of a failed connection to what is wrong. The first match counts.
var tlsFailures = []struct{ part, sentence string }{
	{"looked like an HTTP/1.1 header", "the server at %s speaks TLS only: write https:// before the endpoint, and name the authority of its certificate with --cacert"},
	{"does not look like a TLS handshake", "the server at %s does not speak TLS: write the endpoint without https://"},
	{"certificate required", "the server at %s requires a client certificate from its --client-ca: give one with --cert and --key"},
	{"unknown authority", "the certificate of the server at %s comes from an unknown authority: name that authority with --cacert"},
	{"x509:", "the certificate of the server at %s is not valid for it: check the endpoint and the certificate"},
	{"remote error: tls:", "the server at %s does not accept this client's certificate: give one from its --client-ca with --cert and --key"},
}

// explainTLS explains a failed TLS handshake; it returns nil if text is of another kind of error. The server has not
// received the request, so the exit code is not that of an unknown outcome.
func (c *client) explainTLS(doing, text string) error {
	for _, t := range tlsFailures {
		if strings.Contains(text, t.part) {
			return command.Failed("could not %s: "+t.sentence+" (%s)", doing, c.flags.endpoint, memberjson.Innermost(text))
		}
	}
	return nil
}
