package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ofThisServer serves requests only whose Host is an address, localhost, or a name that this server advertises or
// listens on. A web page can have its own name lead to an address of its reader's network; the browser then sends that
// name as Host, and takes the answers for the page's own.
func (s *Server) ofThisServer(next http.Handler) http.Handler {
	names := s.hostNames()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !isOwnHost(host, names) {
			http.Error(w, fmt.Sprintf("this server is not known as %q: use its address, localhost, or a name that --advertise has", host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostNames returns the names, in small letters, that operators have given to this server.
func (s *Server) hostNames() []string {
	names := []string{"localhost", hostOf(s.cfg.ListenHTTP), hostOf(s.cfg.ListenClient)}
	for _, entry := range s.cfg.Advertise {
		if text, err := clientURL(entry, s.cfg.scheme()); err == nil {
			if u, err := url.Parse(text); err == nil {
				names = append(names, u.Hostname())
			}
		}
	}
	for i, name := range names {
		names[i] = canonicalHost(name)
	}
	return names
}

// hostOf returns an address without its port, if it has one.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

func canonicalHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func isOwnHost(host string, names []string) bool {
	if host == "" { // a client of HTTP/1.0, which no browser is
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(names, canonicalHost(host))
}
