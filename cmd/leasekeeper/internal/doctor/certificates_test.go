package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/certificate"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

func TestDaysLeftOfACertificateAreJudged(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		left time.Duration
		want Verdict
	}{{30 * day, OK}, {30*day - 1, Warn}, {7 * day, Warn}, {7*day - 1, Fail}, {1, Fail}, {0, Fail}, {-time.Hour, Fail}} {
		cert := &x509.Certificate{NotBefore: now.Add(-90 * day), NotAfter: now.Add(c.left)}
		expect(t, fmt.Sprint(c.left), judgeValidity("x", cert, now, "renew it"), c.want)
	}
	early := &x509.Certificate{NotBefore: now.Add(1), NotAfter: now.Add(90 * day)}
	expect(t, "not valid yet", judgeValidity("x", early, now, "wait"), Fail)
}

func TestNamesOfACertificateAreJudged(t *testing.T) {
	cert := &x509.Certificate{DNSNames: []string{"a.example.org"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 7)}}
	for _, c := range []struct {
		addresses []string
		want      Verdict
	}{
		{[]string{"a.example.org:1", "10.0.0.7:2"}, OK}, {[]string{"a.example.org"}, OK}, {[]string{"b.example.org:1"}, Fail}, {[]string{"a.example.org:1", "10.0.0.8:1"}, Fail},
		{[]string{"0.0.0.0:1"}, NotChecked}, {nil, NotChecked},
	} {
		expect(t, fmt.Sprint(c.addresses), judgeNames("x", cert, c.addresses), c.want)
	}
}

func TestChainOfACertificateIsJudged(t *testing.T) {
	ours, theirs := authority.New(t, "ours"), authority.New(t, "theirs")
	pair, now := ours.Pair("x"), time.Now()
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	pool := func(a *authority.Authority) *x509.CertPool {
		p := x509.NewCertPool()
		p.AppendCertsFromPEM(a.PEM())
		return p
	}
	expect(t, "ours", judgeChain("x", pair, pool(ours), now, memberChain, both...), OK)
	expect(t, "another authority", judgeChain("x", pair, pool(theirs), now, memberChain, both...), Fail)
	expect(t, "later", judgeChain("x", pair, pool(ours), now.Add(day), memberChain, both...), NotChecked)
	expect(t, "another usage", judgeChain("x", pair, pool(ours), now, memberChain, x509.ExtKeyUsageCodeSigning), Fail)
}

func TestEachFailureOfAChainHasItsOwnFix(t *testing.T) {
	ours, theirs, now := authority.New(t, "ours"), authority.New(t, "theirs"), time.Now()
	pool := func(a *authority.Authority) *x509.CertPool {
		p := x509.NewCertPool()
		p.AppendCertsFromPEM(a.PEM())
		return p
	}
	strange := ours.Pair("strange")
	strange.Leaf.UnhandledCriticalExtensions = []asn1.ObjectIdentifier{{1, 2, 3}}
	for _, c := range []struct {
		what  string
		pair  tls.Certificate
		pool  *x509.CertPool
		usage x509.ExtKeyUsage
		fix   func(chainFixes) string
	}{
		{"an unknown authority", ours.Pair("x"), pool(theirs), x509.ExtKeyUsageServerAuth, func(f chainFixes) string { return f.authority }},
		{"a missing usage", ours.Pair("x"), pool(ours), x509.ExtKeyUsageCodeSigning, func(f chainFixes) string { return f.usage }},
		{"an unknown extension", strange, pool(ours), x509.ExtKeyUsageServerAuth, func(f chainFixes) string { return f.other }},
	} {
		for _, fixes := range []chainFixes{memberChain, serverChain} {
			got := judgeChain("x", c.pair, c.pool, now, fixes, c.usage)
			expect(t, c.what, got, Fail)
			if want := c.fix(fixes); !strings.HasPrefix(got.Fix, want) {
				t.Errorf("%s: fix %q, want %q", c.what, got.Fix, want)
			}
		}
	}
}

func TestListOfRevokedCertificatesIsJudged(t *testing.T) {
	now := time.Now()
	expect(t, "no date", judgeList("x", time.Time{}, now), OK)
	expect(t, "in time", judgeList("x", now, now), OK)
	expect(t, "late", judgeList("x", now.Add(-1), now), Warn)
}

func TestCertificateFilesAreChecked(t *testing.T) {
	dir, ca, now := t.TempDir(), authority.New(t, "ca"), time.Now()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := ca.Issue("x", "127.0.0.1")
	_, otherKey := ca.Issue("y", "127.0.0.1")
	files := certificate.Files{
		Cert: write("cert", cert), Key: write("key", key), CA: write("ca", ca.PEM()),
		CertFlag: "--peer-cert", KeyFlag: "--peer-key", CAFlag: "--peer-ca", CRLFlag: "--peer-crl",
	}
	verdicts := func(f certificate.Files) (all []Verdict) {
		for _, c := range checkCertificates(f, []string{"127.0.0.1:1"}, true, now) {
			all = append(all, c.Verdict)
		}
		return all
	}
	for _, c := range []struct {
		what   string
		change func(*certificate.Files)
		want   []Verdict
	}{
		{"valid for an hour", func(*certificate.Files) {}, []Verdict{Fail, OK, OK}},
		{"another key", func(f *certificate.Files) { f.Key = write("key2", otherKey) }, []Verdict{Fail}},
		{"a list", func(f *certificate.Files) { f.CRL = write("crl", ca.Revoke(now.Add(day))) }, []Verdict{Fail, OK, OK, OK}},
		{"a late list", func(f *certificate.Files) { f.CRL = write("crl2", ca.Revoke(now.Add(-time.Minute))) }, []Verdict{Fail, OK, OK, Warn}},
		{"revoked", func(f *certificate.Files) { f.CRL = write("crl3", ca.Revoke(now.Add(day), cert)) }, []Verdict{Fail, OK, OK, Fail}},
	} {
		changed := files
		c.change(&changed)
		if got := verdicts(changed); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
