package server

import (
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// Members need no client certificate. So an unprotected port for members would defeat client certificates.
func TestClientCertificatesNeedPeerCertificates(t *testing.T) {
	group := func(open, insecure bool) *Cluster {
		return &Cluster{Peers: &cableEnd{open: open}, InsecurePeers: insecure}
	}
	ca := authority.New(t, "ca")
	for name, c := range map[string]struct {
		group    *Cluster
		clientCA *authority.Authority
		refused  bool
	}{
		"open":                      {group(true, false), ca, true},
		"open on purpose":           {group(true, true), ca, false},
		"proven or on this machine": {group(false, false), ca, false},
		"clients prove nothing":     {group(true, false), nil, false},
		"alone":                     {nil, ca, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := secured(t, ca, c.clientCA)
			cfg.Cluster = c.group
			if err := cfg.Validate(); errors.Is(err, ErrOpenPeers) != c.refused || err != nil != c.refused {
				t.Errorf("refused: %v, and the configuration is %v", c.refused, err)
			}
		})
	}
}
