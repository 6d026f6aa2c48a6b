//go:build linux

package chaos

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// size is how many members the group has.
const size = 3

// network is what is between the members, and between them and their clients.
type network interface {
	// endpoint is where clients reach a member.
	endpoint(member int) string
	// flags are those of a member that are about addresses.
	flags(member int) []string
	// command returns the command with these arguments, to be run where the member lives.
	command(member int, args []string) *exec.Cmd
	// lives is told which process a member is.
	lives(member, pid int)
	// cut lets nothing of what one member sends arrive at another. Connections stay open.
	cut(from, to int)
	// isolate cuts a member off from everybody, clients too.
	isolate(member int)
	// delay has everything that members send each other come that much later, or says why it cannot.
	delay(by time.Duration) error
	// heal takes all that back.
	heal()
}

// name is that of a member.
func name(member int) string { return string(rune('a' + member)) }

// others are all members but one.
func others(member int) (all []int) {
	for i := 1; i < size; i++ {
		all = append(all, (member+i)%size)
	}
	return all
}

// list is what --initial-cluster says.
func list(peers func(member int) string) (text string) {
	for i := range size {
		text += fmt.Sprintf(",%s=%s", name(i), peers(i))
	}
	return text[1:]
}

// must ends the test if something of its own did not work.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
