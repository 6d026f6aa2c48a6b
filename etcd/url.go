package etcd

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
// the certificates that a member's may descend from, cert and key are the client's own, all in PEM form. Each
// of them means TLS.
func ParseURL(u *url.URL) (Config, error) {
	cfg := Config{Endpoints: strings.Split(u.Host, ","), Prefix: strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/")}
	if u.Scheme != Scheme && u.Scheme != SchemeTLS {
		return cfg, fmt.Errorf("%w: a URL of etcd begins with etcd:// or etcds://", driver.ErrInvalid)
	}
	if u.Opaque != "" || u.Fragment != "" {
		return cfg, fmt.Errorf("%w: a URL of etcd looks like etcd://host1:2379,host2:2379/prefix", driver.ErrInvalid)
	}
	if u.User != nil {
		cfg.Username = u.User.Username()
		cfg.Password, _ = u.User.Password()
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return cfg, fmt.Errorf("%w: the query of the URL of etcd can not be read", driver.ErrInvalid)
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return cfg, fmt.Errorf("%w: %q is no parameter of a URL of etcd: there are %s", driver.ErrInvalid, name, strings.Join(parameters, ", "))
		}
		if len(values) != 1 || values[0] == "" {
			return cfg, fmt.Errorf("%w: the parameter %q of a URL of etcd names one file", driver.ErrInvalid, name)
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
			return nil, fmt.Errorf("%w: the certificates of etcd's authority: %w", driver.ErrInvalid, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", driver.ErrInvalid, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%w: cert and key belong together in a URL of etcd: give both, or neither", driver.ErrInvalid)
	}
	if cert != "" {
		// Read once here, so that what is wrong shows at once, and again when it may have been renewed.
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("%w: the client's certificate for etcd: %w", driver.ErrInvalid, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}
