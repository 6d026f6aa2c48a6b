package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/driver"
)

func init() {
	for _, scheme := range []string{Scheme, SchemeTLS} {
		driver.Register(scheme, func(_ context.Context, u *url.URL) (driver.Backend, error) {
			cfg, err := ParseURL(u)
			if err != nil {
				return nil, err
			}
			b, err := New(cfg)
			if err != nil {
				return nil, err
			}
			return b, nil
		})
	}
}

// parameters are those that a URL may have.
var parameters = []string{"ca", "cert", "key"}

// ParseURL returns the configuration that a URL stands for. It reads the files that the URL names: ca holds
// the certificates that the server's may descend from, cert and key are the client's own, all in PEM form. Each
// of them means TLS.
func ParseURL(u *url.URL) (Config, error) {
	cfg := Config{Endpoints: strings.Split(u.Host, ","), Namespace: strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/")}
	if u.Scheme != Scheme && u.Scheme != SchemeTLS {
		return cfg, fmt.Errorf("%w: a URL of a server begins with leasekeeper:// or leasekeepers://", driver.ErrInvalid)
	}
	if u.Opaque != "" || u.Fragment != "" {
		return cfg, fmt.Errorf("%w: a URL of a server looks like leasekeeper://host1:2379,host2:2379/namespace", driver.ErrInvalid)
	}
	if u.User != nil {
		return cfg, fmt.Errorf("%w: the server knows no users: leave user and password out of the URL, and give a certificate if it wants one", driver.ErrInvalid)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return cfg, fmt.Errorf("%w: the query of the URL of the server can not be read", driver.ErrInvalid)
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return cfg, fmt.Errorf("%w: %q is no parameter of a URL of a server: there are %s", driver.ErrInvalid, name, strings.Join(parameters, ", "))
		}
		if len(values) != 1 || values[0] == "" {
			return cfg, fmt.Errorf("%w: the parameter %q of a URL of a server names one file", driver.ErrInvalid, name)
		}
	}
	if u.Scheme == SchemeTLS || len(query) > 0 {
		if cfg.TLS, err = readTLS(query.Get("ca"), query.Get("cert"), query.Get("key")); err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.validate()
}

func readTLS(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: the certificates of the server's authority: %w", driver.ErrInvalid, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", driver.ErrInvalid, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%w: cert and key belong together in a URL of a server: give both, or neither", driver.ErrInvalid)
	}
	if cert != "" {
		// Read once here, so that what is wrong shows at once, and again when it may have been renewed.
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("%w: the client's certificate for the server: %w", driver.ErrInvalid, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}
