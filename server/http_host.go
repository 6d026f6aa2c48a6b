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

// checkHost refuses a request unless its Host is an IP address, localhost, or a name that this server advertises or
// listens on. This defends against DNS rebinding. A web page can point its own name at an address in its reader's
// network; the browser would then let the page read the answers.
func (s *Server) checkHost(next http.Handler) http.Handler {
	names := s.hostNames()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !isOwnHost(host, names) {
			http.Error(w, fmt.Sprintf("this server is not known as %q: use its IP address, localhost, or a name given to --advertise", host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostNames returns the names that operators have given to this server, in lower case.
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
	if host == "" { // a client of HTTP/1.0, so not a browser
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(names, canonicalHost(host))
}
