package login

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// minHMACBytes is the least length of a secret: that of the shortest hash.
	minHMACBytes = 32
	// minRSABits is the least length of an RSA key.
	minRSABits = 2048
)

// keySet is what the files of keys contain.
type keySet struct {
	private any                   // nil: tokens can only be verified
	public  []jwt.VerificationKey // that of private among them
	text    [2][]byte             // of both files
}

func (s *keySet) equal(other *keySet) bool {
	return bytes.Equal(s.text[0], other.text[0]) && bytes.Equal(s.text[1], other.text[1])
}

// read reads the files.
func (o JWTOptions) read() (*keySet, error) {
	set := new(keySet)
	for i, name := range []string{o.PublicKey, o.PrivateKey} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("cannot read a key for tokens (%w): fix --auth-token", err)
		}
		set.text[i] = text
	}
	if _, ok := o.method.(*jwt.SigningMethodHMAC); ok {
		return set, set.useSecret(o)
	}
	if err := set.parse(o); err != nil {
		return nil, fmt.Errorf("the keys for tokens cannot be used (%w): fix pub-key, priv-key and sign-method of --auth-token", err)
	}
	return set, nil
}

// useSecret takes the private file as the secret of an HMAC, as etcd does.
func (s *keySet) useSecret(o JWTOptions) error {
	secret := s.text[1]
	if len(secret) < minHMACBytes {
		return fmt.Errorf("the secret for tokens in %q has %d bytes: give priv-key of --auth-token a file of at least %d random bytes",
			o.PrivateKey, len(secret), minHMACBytes)
	}
	s.private, s.public = secret, []jwt.VerificationKey{secret}
	return nil
}

// parse decodes both files. Each public key must suit the method, so a token cannot be verified by another algorithm.
func (s *keySet) parse(o JWTOptions) error {
	if len(s.text[1]) > 0 {
		key, err := parsePrivate(o.method, s.text[1])
		if err != nil {
			return fmt.Errorf("%s: %w", o.PrivateKey, err)
		}
		s.private, s.public = key, append(s.public, key.Public())
	}
	for rest := s.text[0]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := parsePublic(o.method, pem.EncodeToMemory(block))
		if err != nil {
			return fmt.Errorf("%s: %w", o.PublicKey, err)
		}
		s.public = append(s.public, key)
	}
	for _, key := range s.public {
		if err := suits(o.method, key); err != nil {
			return err
		}
	}
	switch {
	case len(s.public) == 0:
		return errors.New("there is no key in them")
	case s.private == nil || len(s.text[0]) == 0:
		return nil
	}
	own := s.public[0].(interface{ Equal(crypto.PublicKey) bool })
	for _, key := range s.public[1:] {
		if own.Equal(key) {
			return nil
		}
	}
	return errors.New("the public key of priv-key is not in pub-key")
}

// signer is a private key of any algorithm.
type signer interface{ Public() crypto.PublicKey }

func parsePrivate(method jwt.SigningMethod, text []byte) (key signer, err error) {
	switch method.(type) {
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		return parsed[signer](jwt.ParseRSAPrivateKeyFromPEM(text))
	case *jwt.SigningMethodECDSA:
		return parsed[signer](jwt.ParseECPrivateKeyFromPEM(text))
	}
	return parsed[signer](jwt.ParseEdPrivateKeyFromPEM(text))
}

func parsePublic(method jwt.SigningMethod, text []byte) (crypto.PublicKey, error) {
	switch method.(type) {
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		return jwt.ParseRSAPublicKeyFromPEM(text)
	case *jwt.SigningMethodECDSA:
		return jwt.ParseECPublicKeyFromPEM(text)
	}
	return jwt.ParseEdPublicKeyFromPEM(text)
}

// parsed returns a key under another type, and no key beside an error.
func parsed[T any](key any, err error) (none T, _ error) {
	if err != nil {
		return none, err
	}
	as, ok := key.(T)
	if !ok {
		return none, fmt.Errorf("a key of type %T is no private key", key)
	}
	return as, nil
}

// suits returns why a public key cannot be used with a method.
func suits(method jwt.SigningMethod, key any) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return fmt.Errorf("an RSA key has %d bits, fewer than %d", bits, minRSABits)
		}
	case *ecdsa.PublicKey:
		m, ok := method.(*jwt.SigningMethodECDSA)
		if bits := key.Curve.Params().BitSize; !ok || bits != m.CurveBits {
			return fmt.Errorf("a key is on a curve of %d bits, which is not that of %s", bits, method.Alg())
		}
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("a key of type %T suits no method", key)
	}
	return nil
}
