package controllerlease_test

import (
	"testing"

	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // the page's program uses it
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func TestPageShowsProgramThatCompiles(t *testing.T) {
	pageprogram.Vet(t, "../../docs/contrib/controller-runtime.md", nil)
	pageprogram.Resolve(t, "../../docs/contrib/controller-runtime.md", nil, "../..", "contrib/controller-runtime", "contrib/client-go")
}
