package roster

import (
	"net/netip"
	"slices"
	"strings"
)

// Address returns where a peer URL leads, in one spelling, so that two URLs can be compared: host:port without the
// scheme, the host in lower case and without a final dot, an IP address as package netip writes it, and the port without
// leading zeros. url may have no scheme. Address looks up no names, so two names of one host differ.
func Address(url string) string {
	if _, rest, found := strings.Cut(url, "://"); found {
		url = rest
	}
	url = strings.TrimSuffix(url, "/")
	i := strings.LastIndexByte(url, ':')
	if i < 0 {
		return strings.ToLower(url)
	}
	host, port := strings.ToLower(url[:i]), strings.TrimLeft(url[i+1:], "0")
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return host + ":" + port
}

// usesAddress reports whether a peer URL of this member leads where one of another member does, whatever their schemes
// and spellings are.
func (r Roster) usesAddress(m Member) bool {
	own := make([]string, len(m.PeerURLs))
	for i, url := range m.PeerURLs {
		own[i] = Address(url)
	}
	return slices.ContainsFunc(r.members, func(other Member) bool {
		return other.ID != m.ID && slices.ContainsFunc(other.PeerURLs, func(url string) bool { return slices.Contains(own, Address(url)) })
	})
}
