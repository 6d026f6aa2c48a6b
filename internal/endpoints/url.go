package endpoints

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Store is what a backend connects to, and how messages speak of it.
type Store struct {
	Name              string // such as "etcd", or "the server"
	Indefinite        string // the same for one of many: "etcd", "a server"
	Scheme, SchemeTLS string // of URLs: with the second, connections are encrypted in any case
	Path              string // what the path of a URL is, such as "prefix"
	Users             bool   // a URL may name a user
	// Answered says whether an error is the store's last word on a request, which then had no effect, and
	// Elsewhere whether it says nothing about it: another endpoint may do it, or the same one later.
	Answered, Elsewhere func(error) bool
}

// parameters are those that a URL may have.
var parameters = []string{"ca", "cert", "key"}

// ParseURL returns what a URL says about connections, and its path without slashes around it. It reads the
// files that the URL names: ca holds the certificates that the store's may descend from, cert and key are the
// client's own, all in PEM form. Each of them means TLS.
func (s Store) ParseURL(u *url.URL) (cfg Config, path string, err error) {
	cfg.Endpoints = strings.Split(u.Host, ",")
	path = strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != s.Scheme && u.Scheme != s.SchemeTLS {
		return cfg, path, fmt.Errorf("%w: a URL of %s begins with %s:// or %s://", backend.ErrInvalid, s.Indefinite, s.Scheme, s.SchemeTLS)
	}
	if u.Opaque != "" || u.Fragment != "" {
		return cfg, path, fmt.Errorf("%w: a URL of %s looks like %s://host1:2379,host2:2379/%s", backend.ErrInvalid, s.Indefinite, s.Scheme, s.Path)
	}
	if u.User != nil && !s.Users {
		return cfg, path, fmt.Errorf("%w: %s knows no users: leave user and password out of the URL, and give a certificate if it wants one", backend.ErrInvalid, s.Name)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return cfg, path, fmt.Errorf("%w: the query of the URL of %s cannot be read", backend.ErrInvalid, s.Name)
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return cfg, path, fmt.Errorf("%w: %q is no parameter of a URL of %s: there are %s", backend.ErrInvalid, name, s.Indefinite, strings.Join(parameters, ", "))
		}
		if len(values) != 1 || values[0] == "" {
			return cfg, path, fmt.Errorf("%w: the parameter %q of a URL of %s names one file", backend.ErrInvalid, name, s.Indefinite)
		}
	}
	if u.Scheme == s.SchemeTLS || len(query) > 0 {
		cfg.TLS, err = s.readTLS(query.Get("ca"), query.Get("cert"), query.Get("key"))
	}
	return cfg, path, err
}

func (s Store) readTLS(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: the certificates of %s's authority: %w", backend.ErrInvalid, s.Name, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", backend.ErrInvalid, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%w: cert and key belong together in a URL of %s: give both, or neither", backend.ErrInvalid, s.Indefinite)
	}
	if cert != "" {
		// Read once here, so that what is wrong shows at once, and again when it may have been renewed.
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("%w: the client's certificate for %s: %w", backend.ErrInvalid, s.Name, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}
