package roster

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrInsecure is the error of a change by which the others would reach a member without TLS although access is enabled, and
// of enabling access while there is such a member. It comes as an [InsecureError].
var ErrInsecure = errors.New("another machine reaches a member without TLS, so any program there could act for any user")

// An InsecureError names a member that the others reach without TLS.
type InsecureError struct {
	Member uint64
	Name   string // empty if unknown
	URL    string
}

func (e *InsecureError) Error() string {
	who := fmt.Sprintf("%016x", e.Member)
	if e.Name != "" {
		who = e.Name + " (" + who + ")"
	}
	return fmt.Sprintf("the other members reach the member %s at %s without TLS, so any program in their network could act for any user: "+
		"give all members --peer-cert, --peer-key and --peer-ca, and the member a URL with https://", who, e.URL)
}

// Unwrap returns [ErrInsecure].
func (e *InsecureError) Unwrap() error { return ErrInsecure }

// CheckSecure returns an [InsecureError] if the others reach one of these members without TLS over the network. It looks up
// no host names, and depends on the members alone. Members without a URL count as secure.
func CheckSecure(members ...Member) error {
	for _, m := range members {
		for _, url := range m.PeerURLs {
			if strings.HasPrefix(strings.ToLower(url), "http://") && !isLoopback(Address(url)) {
				return &InsecureError{Member: m.ID, Name: m.Name, URL: url}
			}
		}
	}
	return nil
}

// CheckSecure is [CheckSecure] for all members.
func (r Roster) CheckSecure() error { return CheckSecure(r.members...) }

// ApplyIn is [Roster.Apply] in a cluster in which access is enabled, or is not. While it is enabled, members name users to each
// other, so a change is refused if it lets the others reach a member without TLS.
func (r Roster) ApplyIn(enabled bool, c Change) (Roster, error) {
	if enabled {
		if err := c.CheckSecure(); err != nil {
			return r, err
		}
	}
	return r.Apply(c)
}

// CheckSecure is [CheckSecure] for the member that the change adds, or whose URLs it replaces.
func (c Change) CheckSecure() error {
	if c.Kind != Add && c.Kind != Update {
		return nil
	}
	return CheckSecure(c.Member)
}

// isLoopback reports whether only programs on the same machine reach an address in the spelling of [Address].
func isLoopback(address string) bool {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = address[:i]
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
