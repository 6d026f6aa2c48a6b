package postgres_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageForUsersOfOtherLocksShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/how-to/from-other-locks.md", nil)
}
