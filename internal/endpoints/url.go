package endpoints

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Store describes a kind of store, for messages and for the treatment of its errors.
type Store struct {
	Name              string // such as "etcd", or "the server"
	Indefinite        string // one of several: "etcd", "a server"
	Scheme, SchemeTLS string // of URLs; SchemeTLS always encrypts
	Path              string // what the path of a URL is, such as "prefix"
	// Foreign, if not empty, says what a server is that does not have a method.
	Foreign string
	// FinalForAll: if the last of several attempts is answered, the earlier ones had no effect that the answer does not show.
	FinalForAll bool
	// Answered reports whether an error is the store's last word on a request, which then had no effect. Elsewhere reports
	// whether the request had no effect and may succeed at another endpoint, or later.
	Answered, Elsewhere func(error) bool
	// Kind returns the error of package backend that stands for an error.
	Kind func(error) error
}

// Register registers a backend for URLs with the schemes of a store.
func Register[C any, B backend.Backend](s *Store, parse func(*url.URL) (C, error), open func(C) (B, error)) {
	for _, scheme := range []string{s.Scheme, s.SchemeTLS} {
		backend.Register(scheme, func(_ context.Context, u *url.URL) (backend.Backend, error) {
			cfg, err := parse(u)
			if err != nil {
				return nil, err
			}
			b, err := open(cfg)
			if err != nil {
				return nil, err // and not b, which is a nil pointer
			}
			return b, nil
		})
	}
}

// parameters are the parameters of a URL.
var parameters = []string{"ca", "cert", "key"}

// ParseURL returns what a URL says about connections, and its path without the slashes around it. It reads the files that the
// URL names, all in PEM form: ca holds the authorities of the store's certificates, cert and key are the client's own. Each
// of them turns TLS on.
func (s *Store) ParseURL(u *url.URL) (cfg Config, path string, err error) {
	cfg.Endpoints = strings.Split(u.Host, ",")
	path = strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != s.Scheme && u.Scheme != s.SchemeTLS {
		return cfg, path, fmt.Errorf("%w: a URL of %s begins with %s:// or %s://", backend.ErrInvalid, s.Indefinite, s.Scheme, s.SchemeTLS)
	}
	if u.Opaque != "" || u.Fragment != "" {
		return cfg, path, fmt.Errorf("%w: a URL of %s looks like %s://host1:2379,host2:2379/%s", backend.ErrInvalid, s.Indefinite, s.Scheme, s.Path)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return cfg, path, fmt.Errorf("%w: the query of the URL of %s is malformed", backend.ErrInvalid, s.Name)
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return cfg, path, fmt.Errorf("%w: a URL of %s has no parameter %q: it may have %s", backend.ErrInvalid, s.Indefinite, name, strings.Join(parameters, ", "))
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

func (s *Store) readTLS(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: reading the certificates of %s's authority: %w", backend.ErrInvalid, s.Name, err)
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
		// The files are read now, so that an error shows at once, and again for each connection, when they may have been
		// renewed.
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("%w: reading the client's certificate for %s: %w", backend.ErrInvalid, s.Name, err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return cfg, nil
}
