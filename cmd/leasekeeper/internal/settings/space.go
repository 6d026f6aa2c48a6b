package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// byteUnits are the units of a number of bytes. Plain bytes come last, because every text has their empty suffix.
var byteUnits = []struct {
	suffix string
	factor uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// parseBytes parses a number of bytes, plain or with a unit.
func parseBytes(key, text string) (uint64, error) {
	for _, unit := range byteUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
		if err == nil && n <= math.MaxInt64/unit.factor {
			return n * unit.factor, nil
		}
		break
	}
	return 0, command.WrongUsage("%s is %q: write a number of bytes, such as 268435456, 256MiB or 8GiB; 0 for no limit", key, text)
}

// writeBytes is the inverse of parseBytes. It uses the largest unit that gives a whole number.
func writeBytes(n uint64) string {
	for i := len(byteUnits) - 2; i >= 0; i-- {
		if unit := byteUnits[i]; n > 0 && n%unit.factor == 0 {
			return fmt.Sprintf("%d%s", n/unit.factor, unit.suffix)
		}
	}
	return strconv.FormatUint(n, 10)
}

// space parses the limits on disk space.
func (l limits) space() (replica.SpaceLimits, error) {
	least, err := parseBytes("min-free-bytes", l.minFree)
	if err != nil {
		return replica.SpaceLimits{}, err
	}
	most, err := parseBytes("quota-bytes", l.quota)
	return replica.SpaceLimits{MinFree: least, Quota: most}, err
}
