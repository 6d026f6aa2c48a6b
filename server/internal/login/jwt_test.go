package login

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/reread"
)

// pemFile writes keys into a file and returns its name.
func pemFile(t *testing.T, keys ...any) string {
	t.Helper()
	var text []byte
	for _, key := range keys {
		block := &pem.Block{Type: "PUBLIC KEY"}
		var err error
		switch key.(type) {
		case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
			block.Type = "PRIVATE KEY"
			block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
		default:
			block.Bytes, err = x509.MarshalPKIXPublicKey(key)
		}
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(block)...)
	}
	return textFile(t, text)
}

func textFile(t *testing.T, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// openJWT opens the tokens that an option describes.
func openJWT(t *testing.T, option string) *JWT {
	t.Helper()
	o, err := ParseOptions(option)
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJWT(newFakeMember(t), *o.JWT, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func issue(t *testing.T, tokens Tokens) string {
	t.Helper()
	token, err := tokens.Issue(t.Context(), "u", policyOf(t).Revision())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func wantHolder(t *testing.T, what string, tokens Tokens, token string, want bool) {
	t.Helper()
	caller, err := tokens.Verify(t.Context(), token)
	if want && (err != nil || caller.User != "u" || caller.Revision != policyOf(t).Revision()) {
		t.Errorf("%s: %+v, %v", what, caller, err)
	}
	if !want && !errors.Is(err, ErrInvalidToken) {
		t.Errorf("%s: accepted for %+v, %v", what, caller, err)
	}
}

func TestTokensOfEveryAlgorithmAreVerified(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := ecKey(t)
	secret := textFile(t, []byte(strings.Repeat("s", 32)))
	for option, public := range map[string]string{
		"jwt,sign-method=RS256,priv-key=" + pemFile(t, rsaKey): "jwt,sign-method=RS256,pub-key=" + pemFile(t, &rsaKey.PublicKey),
		"jwt,sign-method=PS384,priv-key=" + pemFile(t, rsaKey): "jwt,sign-method=PS384,pub-key=" + pemFile(t, &rsaKey.PublicKey),
		"jwt,sign-method=ES256,priv-key=" + pemFile(t, ec):     "jwt,sign-method=ES256,pub-key=" + pemFile(t, &ec.PublicKey),
		"jwt,sign-method=EdDSA,priv-key=" + pemFile(t, edKey):  "jwt,sign-method=EdDSA,pub-key=" + pemFile(t, edKey.Public()),
		"jwt,sign-method=HS256,priv-key=" + secret:             "",
	} {
		j := openJWT(t, option)
		token := issue(t, j)
		wantHolder(t, option, j, token, true)
		broken := token[:len(token)-8] + "AAAAAAAA"
		wantHolder(t, option+", signature changed", j, broken, false)
		if public == "" {
			continue
		}
		verifier := openJWT(t, public)
		wantHolder(t, public, verifier, token, true)
		if _, err := verifier.Issue(t.Context(), "u", policyOf(t).Revision()); err != ErrVerifyOnly {
			t.Errorf("%s: without a private key: %v", public, err)
		}
	}
}

// A token cannot choose the algorithm: not none, not an HMAC with the public key as its secret, not another one of the same
// key.
func TestAlgorithmIsThatOfTheOption(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := pemFile(t, &key.PublicKey)
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	j := openJWT(t, "jwt,sign-method=RS256,priv-key="+pemFile(t, key)+",pub-key="+public)
	said := jwt.MapClaims{"username": "u", "revision": policyOf(t).Revision(), "exp": time.Now().Add(time.Hour).Unix()}
	for method, key := range map[jwt.SigningMethod]any{
		jwt.SigningMethodNone: jwt.UnsafeAllowNoneSignatureType, jwt.SigningMethodHS256: text, jwt.SigningMethodRS512: key,
		jwt.SigningMethodPS256: key,
	} {
		token, err := jwt.NewWithClaims(method, said).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		wantHolder(t, method.Alg(), j, token, false)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256, said).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	wantHolder(t, "the algorithm of the option", j, token, true)
}

func TestTokensWithoutTheClaimsAreRefused(t *testing.T) {
	key := ecKey(t)
	j := openJWT(t, "jwt,sign-method=ES256,priv-key="+pemFile(t, key))
	exp, rev := time.Now().Add(time.Hour).Unix(), policyOf(t).Revision()
	for what, said := range map[string]jwt.MapClaims{
		"no user":      {"revision": rev, "exp": exp},
		"no revision":  {"username": "u", "exp": exp},
		"revision 0":   {"username": "u", "revision": 0, "exp": exp},
		"no expiry":    {"username": "u", "revision": rev},
		"expired":      {"username": "u", "revision": rev, "exp": time.Now().Add(-time.Second).Unix()},
		"not yet":      {"username": "u", "revision": rev, "exp": exp, "nbf": time.Now().Add(time.Hour).Unix()},
		"user of bits": {"username": 7, "revision": rev, "exp": exp},
	} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodES256, said).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		wantHolder(t, what, j, token, false)
	}
	wantHolder(t, "no token", j, "", false)
	wantHolder(t, "no token", j, "a.b.c", false)
	wantHolder(t, "long", j, issue(t, j)+strings.Repeat("x", maxTokenBytes), false)
	long, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"username": "u", "revision": rev, "exp": exp, "jti": strings.Repeat("x", maxTokenBytes),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	wantHolder(t, "long and signed", j, long, false)
}

// Keys are replaced without refusing a token that has not expired: first the new public key is added everywhere, then the
// private key is replaced, then the old public key is removed.
func TestKeysAreReplacedWhileTokensLast(t *testing.T) {
	before, after := ecKey(t), ecKey(t)
	private, public := pemFile(t, before), pemFile(t, &before.PublicKey)
	j := openJWT(t, "jwt,sign-method=ES256,ttl=10m,priv-key="+private+",pub-key="+public)
	now := time.Now()
	j.now = func() time.Time { return now }
	replace := func(name, with string) {
		t.Helper()
		if err := os.Rename(with, name); err != nil {
			t.Fatal(err)
		}
		now = now.Add(reread.Interval)
	}
	old := issue(t, j)
	replace(public, pemFile(t, &before.PublicKey, &after.PublicKey))
	wantHolder(t, "a second public key", j, old, true)
	replace(private, pemFile(t, after))
	fresh := issue(t, j)
	wantHolder(t, "another private key", j, fresh, true)
	wantHolder(t, "another private key, old token", j, old, true)
	replace(public, pemFile(t, &before.PublicKey, &after.PublicKey)) // nothing new
	replace(public, pemFile(t, &after.PublicKey))
	wantHolder(t, "the old public key was removed", j, fresh, true)
	wantHolder(t, "the old public key was removed, old token", j, old, true) // as long as it lasts
	now = now.Add(10*time.Minute + time.Second)
	wantHolder(t, "after the TTL, old token", j, old, false)
	late := issue(t, j)
	replace(private, textFile(t, []byte("no key")))
	wantHolder(t, "a broken file leaves the keys", j, late, true)
}

// A removed key ends with the TTL even for tokens that last longer.
func TestRemovedKeyEndsWithTheTTL(t *testing.T) {
	before, after := ecKey(t), ecKey(t)
	private := pemFile(t, before)
	j := openJWT(t, "jwt,sign-method=ES256,ttl=1m,priv-key="+private)
	now := time.Now()
	j.now = func() time.Time { return now }
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"username": "u", "revision": policyOf(t).Revision(), "exp": now.Add(time.Hour).Unix(),
	}).SignedString(before)
	if err != nil {
		t.Fatal(err)
	}
	wantHolder(t, "its key is in force", j, token, true)
	if err := os.Rename(pemFile(t, after), private); err != nil {
		t.Fatal(err)
	}
	now = now.Add(reread.Interval)
	wantHolder(t, "its key was replaced just now", j, token, true)
	now = now.Add(time.Minute + time.Second)
	wantHolder(t, "its key was replaced a TTL ago", j, token, false)
}

// A member that only verifies tokens has no private key that could be replaced. A file that is written again without a change
// ends no key.
func TestPublicKeyIsReplacedAlone(t *testing.T) {
	before, after := ecKey(t), ecKey(t)
	public := pemFile(t, &before.PublicKey)
	verifier := openJWT(t, "jwt,sign-method=ES256,pub-key="+public)
	now := time.Now()
	verifier.now = func() time.Time { return now }
	old, fresh := issue(t, openJWT(t, "jwt,sign-method=ES256,priv-key="+pemFile(t, before))), issue(t, openJWT(t, "jwt,sign-method=ES256,priv-key="+pemFile(t, after)))
	wantHolder(t, "the first key", verifier, old, true)
	wantHolder(t, "a key that is not known yet", verifier, fresh, false)
	for range 2 {
		if err := os.Rename(pemFile(t, &after.PublicKey), public); err != nil {
			t.Fatal(err)
		}
		now = now.Add(reread.Interval)
		wantHolder(t, "the second key", verifier, fresh, true)
		wantHolder(t, "the first key, which was replaced just now", verifier, old, true)
	}
}

func TestJWTOfAnEarlierPolicyIsNotIssued(t *testing.T) {
	j := openJWT(t, "jwt,sign-method=ES256,priv-key="+pemFile(t, ecKey(t)))
	if _, err := j.Issue(context.Background(), "u", policyOf(t).Revision()-1); err != access.ErrOldRevision {
		t.Errorf("issued by an earlier policy: %v", err)
	}
}

func TestUnsuitableKeysAreRefused(t *testing.T) {
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, other := ecKey(t), ecKey(t)
	ecPublic := pemFile(t, &ec.PublicKey)
	for option, want := range map[string]string{
		"jwt,sign-method=RS256,priv-key=" + pemFile(t, short):                                           "1024 bits",
		"jwt,sign-method=RS256,priv-key=" + pemFile(t, ec):                                              "fix pub-key",
		"jwt,sign-method=ES256,priv-key=" + pemFile(t, p384):                                            "384 bits",
		"jwt,sign-method=ES256,priv-key=" + pemFile(t, ec) + ",pub-key=" + pemFile(t, &other.PublicKey): "is not in pub-key",
		"jwt,sign-method=RS256,pub-key=" + ecPublic:                                                     ecPublic,
		"jwt,sign-method=ES256,pub-key=" + textFile(t, []byte("no key")):                                "no key in them",
		"jwt,sign-method=ES256":                                                                         "no key in them",
		"jwt,sign-method=ES256,priv-key=/nonexistent":                                                   "cannot read",
		"jwt,sign-method=HS256,priv-key=" + textFile(t, []byte("short")):                                "at least 32",
		"jwt,sign-method=HS256":                                                                         "at least 32",
	} {
		o, err := ParseOptions(option)
		if err != nil {
			t.Errorf("%s: %v", option, err)
			continue
		}
		if _, err := NewJWT(newFakeMember(t), *o.JWT, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestOptionsAreThoseOfEtcd(t *testing.T) {
	for text, want := range map[string]string{
		"simple":                          "",
		"jwt,sign-method=ES256":           "",
		"jwt,sign-method=ES256,ttl=1h30m": "",
		"":                                "give simple",
		"Simple":                          "give simple",
		"simple,ttl=1m":                   "--auth-token-ttl",
		"jwt":                             "sign-method is \"\"",
		"jwt,sign-method=none":            "give one of",
		"jwt,sign-method=ES256,ttl=0":     "ttl",
		"jwt,sign-method=ES256,ttl=x":     "ttl",
		"jwt,sign-method=ES256,key=f":     "no option \"key\"",
		"jwt,sign-method":                 "name=value",
		"jwt,sign-method=ES256,=x":        "name=value",
		"jwt,ttl=1m,ttl=2m":               "twice",
	} {
		if _, err := ParseOptions(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCostOfBcryptIsBounded(t *testing.T) {
	for cost, want := range map[int]bool{MinCost: true, MaxCost: true, MinCost - 1: false, MaxCost + 1: false} {
		if err := Check("simple", cost); (err == nil) != want {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
}

func TestOptionsOpenTheirTokens(t *testing.T) {
	for text, want := range map[string]bool{"simple": false, "jwt,sign-method=ES256,priv-key=" + pemFile(t, ecKey(t)): true} {
		o, err := ParseOptions(text)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := o.Open(newFakeMember(t), NewLogins(time.Minute), slog.New(slog.DiscardHandler))
		if _, got := tokens.(*JWT); got != want || err != nil {
			t.Errorf("%s: %T, %v", text, tokens, err)
		}
	}
}
