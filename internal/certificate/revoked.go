package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"time"
)

// maxListBytes bounds the file of revoked certificates.
const maxListBytes = 64 << 20

// removedFromList is the reason code of an entry that revokes nothing.
const removedFromList = 8

// serial identifies a certificate: the encoded name of its issuer, and its number.
type serial struct{ issuer, number string }

func serialOf(issuer []byte, number *big.Int) serial { return serial{string(issuer), number.String()} }

// revoked are the certificates that their issuers have revoked. It is never modified.
type revoked struct {
	serials map[serial]struct{}
	due     time.Time // the earliest time at which one of the lists should have a successor; zero if no list says it
}

// readRevoked reads a file of revocation lists: any number of them in PEM form, or a single one in DER form. One of the
// authorities must have signed each list.
func readRevoked(path string, authorities []*x509.Certificate) (*revoked, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxListBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxListBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := &revoked{serials: make(map[serial]struct{})}
	lists, err := decodeLists(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, der := range lists {
		if err := all.add(der, authorities); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

// decodeLists returns the lists in a file. Whatever is neither a list nor white space between lists is damage: a list cut short
// must not count as an absent one.
func decodeLists(text []byte) (lists [][]byte, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN")) {
		return [][]byte{text}, nil
	}
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		if !bytes.HasPrefix(rest, []byte("-----BEGIN X509 CRL-----")) {
			return nil, fmt.Errorf("there is something other than an X509 CRL after list %d", len(lists))
		}
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "X509 CRL" {
			return nil, fmt.Errorf("list %d is damaged", len(lists)+1)
		}
		lists = append(lists, block.Bytes)
	}
	return lists, nil
}

// add adds the entries of a list.
func (r *revoked) add(der []byte, authorities []*x509.Certificate) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	if !signedByOne(list, authorities) {
		return fmt.Errorf("no trusted authority has signed the list of %s", list.Issuer)
	}
	for _, extension := range list.Extensions {
		if extension.Critical { // it is about a part of the authority's certificates only
			return fmt.Errorf("the list of %s has the critical extension %v: give a complete list", list.Issuer, extension.Id)
		}
	}
	for _, entry := range list.RevokedCertificateEntries {
		for _, extension := range entry.Extensions {
			if extension.Critical { // the entry is about another issuer's certificate
				return fmt.Errorf("an entry in the list of %s has the critical extension %v: give a list of the issuer itself", list.Issuer, extension.Id)
			}
		}
		if entry.ReasonCode != removedFromList {
			r.serials[serialOf(list.RawIssuer, entry.SerialNumber)] = struct{}{}
		}
	}
	if due := list.NextUpdate; !due.IsZero() && (r.due.IsZero() || due.Before(r.due)) {
		r.due = due
	}
	return nil
}

func signedByOne(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	for _, authority := range authorities {
		if bytes.Equal(list.RawIssuer, authority.RawSubject) && list.CheckSignatureFrom(authority) == nil {
			return true
		}
	}
	return false
}

// refuses returns the revoked certificate because of which the other side of a connection is refused: each of its chains
// has one. It returns nil if there is none.
func (r *revoked) refuses(chains [][]*x509.Certificate) (found *x509.Certificate) {
	for _, chain := range chains {
		one := r.in(chain)
		if one == nil {
			return nil
		}
		found = one
	}
	return found
}

func (r *revoked) in(chain []*x509.Certificate) *x509.Certificate {
	for _, cert := range chain {
		if _, ok := r.serials[serialOf(cert.RawIssuer, cert.SerialNumber)]; ok {
			return cert
		}
	}
	return nil
}
