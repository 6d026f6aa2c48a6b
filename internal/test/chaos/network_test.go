//go:build linux

package chaos

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

const (
	// size is the number of members with a vote.
	size = 3
	// slots is the number of places for members. One is free, except while a member is replaced.
	slots = size + 1
)

// network connects the members with each other and with their clients.
type network interface {
	// endpoint returns the address of a member for clients.
	endpoint(member int) string
	// peer returns the address of a member for other members.
	peer(member int) string
	// flags returns the flags for the addresses on which a member listens.
	flags(member int) []string
	// command returns the command with these arguments, to be run in the member's network.
	command(member int, args []string) *exec.Cmd
	// started reports the process of a member.
	started(member, pid int)
	// cut drops everything that one member sends to another. Connections stay open.
	cut(from, to int)
	// isolate cuts a member off from all members and clients.
	isolate(member int)
	// delay delays everything that members send each other, or returns why it cannot.
	delay(by time.Duration) error
	// heal ends all cuts and delays.
	heal()
}

// name returns the name of the member in a slot.
func name(member int) string { return string(rune('a' + member)) }

// others returns all founders but one.
func others(member int) (all []int) {
	for i := 1; i < size; i++ {
		all = append(all, (member+i)%size)
	}
	return all
}

// list returns the value of --initial-cluster.
func list(peers func(member int) string) (text string) {
	for i := range size {
		text += fmt.Sprintf(",%s=%s", name(i), peers(i))
	}
	return text[1:]
}

// must ends the test on an error in the test's own work.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
