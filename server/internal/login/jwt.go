package login

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/reread"
)

// maxRevision is the greatest revision that JSON expresses exactly.
const maxRevision = 1 << 53

// JWT is a [Tokens] of JSON Web Tokens. Make one with [NewJWT].
type JWT struct {
	member  Member
	options JWTOptions
	log     *slog.Logger
	now     func() time.Time

	mu       sync.Mutex
	watched  reread.Files
	current  *keySet   // never changed, only replaced
	before   *keySet   // the set that current replaced; nil if there is none
	replaced time.Time // when that happened
}

// NewJWT reads the keys that the options name.
func NewJWT(member Member, options JWTOptions, log *slog.Logger) (*JWT, error) {
	j := &JWT{member: member, options: options, log: log, now: time.Now}
	j.watched = reread.Watch(j.now(), options.PublicKey, options.PrivateKey)
	var err error
	j.current, err = options.read()
	return j, err
}

// claims are what etcd's tokens say.
type claims struct {
	Username string   `json:"username"`
	Revision *float64 `json:"revision"`
	jwt.RegisteredClaims
}

// Issue implements [Tokens].
func (j *JWT) Issue(_ context.Context, user string, revision uint64) (string, error) {
	current, _ := j.keys()
	if current.private == nil {
		return "", ErrVerifyOnly
	}
	if j.member.Access().Revision() != revision {
		return "", access.ErrOldRevision
	}
	return jwt.NewWithClaims(j.options.method, jwt.MapClaims{
		"username": user,
		"revision": revision,
		"exp":      j.now().Add(j.options.TTL).Unix(),
	}).SignedString(current.private)
}

// Verify implements [Tokens]. The token's revision says which changes of rights its user knows of. A change of the password
// is one, so an earlier token is refused as old when it is used.
func (j *JWT) Verify(_ context.Context, token string) (access.Caller, error) {
	if len(token) > maxTokenBytes {
		return access.Caller{}, ErrInvalidToken
	}
	current, before := j.keys()
	for _, set := range []*keySet{current, before} {
		if set == nil {
			continue
		}
		if caller, ok := j.verifyWith(set, token); ok {
			return caller, nil
		}
	}
	return access.Caller{}, ErrInvalidToken
}

// verifyWith accepts a token that one of the keys has signed by the algorithm of the options. The token's own header only has to
// agree with it.
func (j *JWT) verifyWith(set *keySet, token string) (access.Caller, bool) {
	var said claims
	_, err := jwt.ParseWithClaims(token, &said, func(*jwt.Token) (any, error) {
		return jwt.VerificationKeySet{Keys: set.public}, nil
	}, jwt.WithValidMethods([]string{j.options.method.Alg()}), jwt.WithExpirationRequired(), jwt.WithTimeFunc(j.now), jwt.WithStrictDecoding())
	if err != nil || said.Revision == nil || *said.Revision < 1 || said.Username == "" {
		return access.Caller{}, false
	}
	return access.Caller{User: said.Username, Revision: uint64(min(*said.Revision, maxRevision))}, true
}

// keys returns the keys in force. before are those that they replaced, as long as tokens signed with them last.
func (j *JWT) keys() (current, before *keySet) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if j.watched.Changed(now) {
		j.read(now)
	}
	if j.before != nil && now.Sub(j.replaced).Abs() > j.options.TTL {
		j.before = nil
	}
	return j.current, j.before
}

// read reads the changed files. Files that cannot be used leave the earlier keys in force.
func (j *JWT) read(now time.Time) {
	read, err := j.options.read()
	if news := j.watched.Used(err); news {
		j.log.Error("the changed files of keys for tokens are invalid; the earlier keys stay in use", "error", err)
	}
	if err != nil {
		return
	}
	if read.equal(j.current) {
		return
	}
	j.before, j.current, j.replaced = j.current, read, now
	j.log.Info("the keys for tokens have changed", "public_keys", len(read.public))
}
