package gooselease_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/goose.md", map[string]string{"migrations/00001_users.sql": "-- +goose Up\n"})
}
