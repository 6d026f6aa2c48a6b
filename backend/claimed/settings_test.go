package claimed_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
)

func TestBackendSettingsTakeThePollInterval(t *testing.T) {
	query, _ := url.ParseQuery("poll=250ms&ns=a")
	options, err := claimed.Settings(query)
	if len(options) != 1 || err != nil {
		t.Errorf("%d options, %v", len(options), err)
	}
	if len(query) != 1 || query.Get("ns") != "a" {
		t.Errorf("left is %v", query)
	}
	if options, err := claimed.Settings(query); len(options) != 0 || err != nil {
		t.Errorf("without one: %d options, %v", len(options), err)
	}
	for _, bad := range []string{"poll=often", "poll=", "poll=1s&poll=2s"} {
		query, _ := url.ParseQuery(bad)
		if _, err := claimed.Settings(query); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
