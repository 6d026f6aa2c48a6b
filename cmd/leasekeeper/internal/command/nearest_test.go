package command_test

import (
	"slices"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

func TestNearestSuggestsWordsWithFewWrongLetters(t *testing.T) {
	words := []string{"ls", "lease", "release", "renew", "serve", "show", "status", "transfer", "transfer-leadership", "watch"}
	for mistyped, want := range map[string][]string{
		"statsu":   {"status"},
		"Staus":    {"status"},
		"serv":     {"serve"},
		"leese":    {"lease"},
		"relase":   {"release"},
		"shwo":     {"show"},
		"trans":    {"transfer", "transfer-leadership"},
		"x":        nil,
		"ps":       nil, // half of two letters is wrong
		"nonsense": nil,
		"":         nil,
	} {
		if got := command.Nearest(mistyped, words); !slices.Equal(got, want) {
			t.Errorf("%q may mean %q, want %q", mistyped, got, want)
		}
	}
	if got := command.DidYouMean("statsu", words); got != " (did you mean status?)" {
		t.Errorf("the question is %q", got)
	}
	if got := command.DidYouMean("nonsense", words); got != "" {
		t.Errorf("the question is %q, want none", got)
	}
}
