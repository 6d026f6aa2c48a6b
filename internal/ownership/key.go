package ownership

import (
	"math"
	"strconv"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// Key returns the key by which a lease waits for a name and owns it.
func Key(name string, lease lessor.ID) []byte {
	key := make([]byte, 0, len(name)+1+16)
	key = append(append(key, name...), '/')
	return strconv.AppendInt(key, int64(lease), 16)
}

// parseKey splits an ownership key into name and lease; ok is false for every other key. A lease has exactly one key
// for a name, because its number has no leading zeros.
func parseKey(key []byte) (name []byte, lease lessor.ID, ok bool) {
	i, id := len(key)-1, uint64(0)
	for shift := 0; i >= 0 && key[i] != '/' && key[i] != '-'; i, shift = i-1, shift+4 {
		digit, isHex := hexDigit(key[i])
		if !isHex || shift > 60 {
			return nil, 0, false
		}
		id |= digit << shift
	}
	if i < 0 || i == len(key)-1 || key[i+1] == '0' {
		return nil, 0, false
	}
	limit, negative := uint64(math.MaxInt64), key[i] == '-'
	if negative {
		i, limit = i-1, limit+1
	}
	if i <= 0 || key[i] != '/' || id > limit {
		return nil, 0, false
	}
	if negative {
		id = -id
	}
	return key[:i], lessor.ID(id), true
}

// hexDigit returns the value of a lower-case hexadecimal digit.
func hexDigit(c byte) (digit uint64, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	}
	return 0, false
}

// unboundKeys is a Bloom filter of the leases for which there may be a key NAME/LEASE, of any name, that is not
// attached to that lease. Nothing is ever removed: if in doubt, the caller looks for the key. Claims have random
// lease IDs, so few of them equal a number that another client uses in its keys.
type unboundKeys [1 << 14]uint64

func (u *unboundKeys) position(id lessor.ID) (word int, bit uint64) {
	h := uint64(id) * 0x9e3779b97f4a7c15 // spreads consecutive numbers
	return int(h >> 50), 1 << (h >> 44 & 63)
}

func (u *unboundKeys) add(id lessor.ID) {
	word, bit := u.position(id)
	u[word] |= bit
}

func (u *unboundKeys) mayHave(id lessor.ID) bool {
	word, bit := u.position(id)
	return u[word]&bit != 0
}
