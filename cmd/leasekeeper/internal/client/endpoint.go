package client

import (
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// place is the server of a command: one endpoint, or the endpoints in the URL of a store.
type place struct {
	hosts              []string // host:port; a connection tries them in this order
	tls                *tls.Config
	username, password string // of the URL; empty for none
	fromURL            bool
}

// storeURL returns the URL of the store that the command line or the environment names, or "" if an endpoint comes first.
// The order is --endpoint or --store, LEASEKEEPER_ENDPOINT, LEASEKEEPER_STORE. given says that the URL comes from the flag.
func (f *clientFlags) storeURL() (rawURL string, given bool, err error) {
	switch {
	case f.endpoint != "" && f.store != "":
		return "", false, command.WrongUsage("--endpoint and --store both say where the server is: omit one of them")
	case f.store != "":
		return f.store, true, settings.CheckStore(f.store)
	case f.endpoint != "" || os.Getenv(settings.EndpointVariable) != "":
		return "", false, nil
	}
	rawURL = os.Getenv(settings.StoreVariable)
	if rawURL == "" {
		return "", false, nil
	}
	return rawURL, false, settings.CheckStore(rawURL)
}

// schemeOf returns the scheme of a URL that [settings.CheckStore] accepts, or "" if the URL is malformed.
func schemeOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// isServer reports whether a URL names a server and not a database. [placeOf] reports a malformed URL.
func isServer(rawURL string) bool { return schemeOf(rawURL) == "" || store.IsServer(rawURL) }

// database returns the URL of the database that a command names as its store, or "" if it names a server.
func (f *clientFlags) database() (string, error) {
	rawURL, _, err := f.storeURL()
	if err != nil || isServer(rawURL) {
		return "", err
	}
	return rawURL, nil
}

// useStore takes the server from the URL of a store. It reports false if the command names none. A database in the
// environment does not count: `leasekeeper run` sets that variable for its command, which may talk to a server.
func (f *clientFlags) useStore() (bool, error) {
	rawURL, given, err := f.storeURL()
	switch {
	case err != nil || rawURL == "":
		return false, err
	case !isServer(rawURL) && !given:
		return false, nil
	case !isServer(rawURL):
		return false, command.WrongUsage("the store of --store is a database (%s), and only a server has what this command is about: name a server with --endpoint, or with a URL such as %s. `leasekeeper ls` and `leasekeeper status` work with databases", schemeOf(rawURL), settings.ExampleStore)
	case f.tls.given():
		return false, command.WrongUsage("--cacert, --cert and --key belong to --endpoint: write the files into the URL of the store, as ?ca=FILE&cert=FILE&key=FILE")
	}
	if f.at, err = placeOf(rawURL); err != nil {
		return false, err
	}
	f.endpoint = strings.Join(f.at.hosts, ",")
	return true, nil
}

// placeOf returns the server in the URL of a store.
func placeOf(rawURL string) (place, error) {
	rawURL, err := settings.WithUser(rawURL)
	if err != nil {
		return place{}, err
	}
	if schemeOf(rawURL) == "" {
		return place{}, command.WrongUsage("the URL of the store is malformed: write one such as %s", settings.ExampleStore)
	}
	servers, err := store.ParseServers(rawURL)
	if err != nil {
		return place{}, command.WrongUsage("%v", err)
	}
	return place{hosts: servers.Endpoints, tls: servers.TLS, username: servers.Username, password: servers.Password, fromURL: true}, nil
}

// target returns how gRPC reaches the place: its first host that answers.
func (p place) target() (string, []grpc.DialOption) {
	if len(p.hosts) == 1 {
		return "passthrough:///" + p.hosts[0], nil
	}
	addresses := make([]resolver.Address, len(p.hosts))
	for i, host := range p.hosts {
		name, _, _ := net.SplitHostPort(host)
		addresses[i] = resolver.Address{Addr: host, ServerName: name}
	}
	const scheme = "hosts"
	hosts := manual.NewBuilderWithScheme(scheme)
	hosts.InitialState(resolver.State{Addresses: addresses})
	return scheme + ":///" + p.hosts[0], []grpc.DialOption{grpc.WithResolvers(hosts)}
}
