package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/certificate"
)

const (
	day = 24 * time.Hour
	// soonDays and lateDays are the days before the end of a certificate from which a check warns and fails.
	soonDays, lateDays = 30, 7
)

// checkCertificates checks certificate files of a server. hosts are the addresses at which others reach the server. mutual
// reports whether the certificate also has to come from the authorities in the files, and serves for outgoing connections.
func checkCertificates(files certificate.Files, hosts []string, mutual bool, now time.Time) []Check {
	name := "certificate " + files.CertFlag
	read, err := files.Inspect()
	if err != nil {
		return []Check{bad(Fail, name, "the files cannot be used", "%v", err)}
	}
	checks := []Check{judgeValidity(name, read.Pair.Leaf, now, "give "+files.CertFlag+" a new certificate; the server rereads the file")}
	checks = append(checks, judgeNames("names "+files.CertFlag, read.Pair.Leaf, hosts))
	if mutual {
		checks = append(checks, judgeChain("chain "+files.CertFlag, read.Pair, read.CAs, now, memberChain, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth))
	}
	if files.CRL == "" {
		return checks
	}
	if mutual && read.Revoked {
		return append(checks, bad(Fail, files.CRLFlag, "it revokes the certificate of this server", "give %s a new certificate", files.CertFlag))
	}
	return append(checks, judgeList(files.CRLFlag, read.NextUpdate, now))
}

// judgeValidity judges the time for which a certificate is valid. fix says how to replace it.
func judgeValidity(name string, cert *x509.Certificate, now time.Time, fix string) Check {
	left := cert.NotAfter.Sub(now)
	days := int(left / day)
	found := fmt.Sprintf("%d days left, until %s", days, cert.NotAfter.UTC().Format(time.DateOnly))
	switch {
	case now.Before(cert.NotBefore):
		return bad(Fail, name, "not valid before "+cert.NotBefore.UTC().Format(time.DateTime)+" UTC", "check the wall clock of this machine, or %s", fix)
	case left <= 0:
		return bad(Fail, name, "expired on "+cert.NotAfter.UTC().Format(time.DateTime)+" UTC", "%s", fix)
	case days < lateDays:
		return bad(Fail, name, found, "%s now", fix)
	case days < soonDays:
		return bad(Warn, name, found, "%s", fix)
	}
	return good(name, "%s", found)
}

// judgeNames judges whether a certificate is valid for the hosts of addresses. An address may have a port.
func judgeNames(name string, cert *x509.Certificate, addresses []string) Check {
	var missing, covered []string
	for _, address := range addresses {
		host := hostOf(address)
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			continue
		}
		if cert.VerifyHostname(host) != nil {
			missing = append(missing, host)
			continue
		}
		covered = append(covered, host)
	}
	switch {
	case len(missing) > 0:
		return bad(Fail, name, "the certificate is not valid for "+listed(missing), "make a certificate whose subject alternative names include it, or advertise an address that it has")
	case len(covered) == 0:
		return skipped(name, "no address is advertised")
	}
	return good(name, "valid for %s", listed(covered))
}

// hostOf returns the host of an address with or without a port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// chainFixes say how to mend a certificate whose chain fails.
type chainFixes struct {
	authority string // no trusted authority has issued it
	usage     string // it lacks a usage
	other     string // any other reason
}

// memberChain mends the certificate files of a member, and serverChain the certificate that a client receives from a server.
var (
	memberChain = chainFixes{
		authority: "add its authority to the file of authorities, and intermediate certificates to the file of the certificate",
		usage:     "make a certificate for servers and clients (serverAuth and clientAuth): a member uses it for both",
		other:     "give the member another certificate",
	}
	serverChain = chainFixes{
		authority: "name the authority of the server's certificate in the URL, as ?ca=FILE",
		usage:     "give the server a certificate for servers (serverAuth)",
		other:     "give the server another certificate",
	}
)

// judgeChain judges whether a certificate comes from an authority in pool, for these usages. A nil pool is the system's.
func judgeChain(name string, pair tls.Certificate, pool *x509.CertPool, now time.Time, fixes chainFixes, usages ...x509.ExtKeyUsage) Check {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(cert)
		}
	}
	for _, usage := range usages {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		invalid, unknown, noRoots := x509.CertificateInvalidError{}, x509.UnknownAuthorityError{}, x509.SystemRootsError{}
		switch {
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			return skipped(name, "a certificate in it is not valid now")
		case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
			return bad(Fail, name, "the certificate lacks a usage", "%s", fixes.usage)
		case errors.As(err, &unknown), errors.As(err, &noRoots):
			return bad(Fail, name, "no trusted authority has issued the certificate", "%s", fixes.authority)
		case err != nil:
			return bad(Fail, name, "the chain of the certificate is not valid", "%s (%v)", fixes.other, err)
		}
	}
	return good(name, "comes from a trusted authority")
}

// judgeList judges when a list of revoked certificates should be replaced. due is the zero time if the list does not say.
func judgeList(name string, due, now time.Time) Check {
	switch {
	case due.IsZero():
		return good(name, "the list does not say when the next one comes")
	case now.After(due):
		return bad(Warn, name, "the next list was due on "+due.UTC().Format(time.DateTime)+" UTC", "get a new list from the authority: certificates that were revoked since are accepted")
	}
	return good(name, "the next list is due on %s", due.UTC().Format(time.DateOnly))
}
