package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

func TestEachCommandIsInOneGroupOfTheHelp(t *testing.T) {
	root := newRoot()
	var known []string
	for _, cmd := range root.Commands() {
		known = append(known, cmd.Name())
		var in []string
		for _, g := range command.Groups {
			if slices.Contains(g.Commands, cmd.Name()) {
				in = append(in, g.ID)
			}
		}
		if len(in) != 1 {
			t.Errorf("`%s` is in the groups %q: put its name into exactly one group in Groups of internal/command/group.go", cmd.Name(), in)
		}
	}
	for _, g := range command.Groups {
		for _, name := range g.Commands {
			if !slices.Contains(known, name) {
				t.Errorf("the group %q has %q in internal/command/group.go, and there is no such command", g.ID, name)
			}
		}
	}
	var out strings.Builder
	if code := run([]string{"help"}, &out, &out); code != command.ExitDone {
		t.Fatal(code, out.String())
	}
	if text := out.String(); strings.Contains(text, "Additional Commands") {
		t.Errorf("help lists commands without a group:\n%s", text)
	}
}
