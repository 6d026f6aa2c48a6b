package backend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestInspectFindsTheInspectorAndHidesSecrets(t *testing.T) {
	RegisterInspector("inspecttest", func(_ context.Context, u *url.URL) (Inspection, error) {
		if u.Host == "bad" {
			return Inspection{}, fmt.Errorf("%w: cannot reach %s", ErrUnavailable, u)
		}
		return Inspection{Server: u.Host}, nil
	})
	if found, err := Inspect(t.Context(), "inspecttest://me:word@good/"); err != nil || found.Server != "good" {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := Inspect(t.Context(), "inspecttest://me:se%2Fcret@bad/"); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "cret") {
		t.Errorf("%v", err)
	}
	if _, err := Inspect(t.Context(), "nosuchscheme://h/"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("no inspector: %v", err)
	}
	if _, err := Inspect(t.Context(), "inspecttest://me:se/cret@h:x/"); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "cret") {
		t.Errorf("no URL: %v", err)
	}
}
