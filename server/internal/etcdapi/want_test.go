package etcdapi

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func wantOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got %v with %v, want %v", got, err, want)
	}
}

func wantStatus(t testing.TB, err, want error) {
	t.Helper()
	got, wanted := status.Convert(err), status.Convert(want)
	if got.Code() != wanted.Code() || got.Message() != wanted.Message() {
		t.Fatalf("got %v, want %v", err, want)
	}
}
