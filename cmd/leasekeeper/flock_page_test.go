//go:build linux || darwin

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// flockPage has the command lines of docs/compare/flock.md, in the order of the page: flock, both, and `run`. They are
// in a state directory and with a lock file of the test.
type flockPage struct {
	lines [3]string
	env   string
}

func newFlockPage(t *testing.T) flockPage {
	t.Helper()
	required.Program(t, "flock", "flock")
	read := readPage(t, "compare/flock.md")
	var p flockPage
	if len(read.blocks) != len(p.lines) {
		t.Fatalf("the page has %d command lines, want %d", len(read.blocks), len(p.lines))
	}
	for i, block := range read.blocks {
		p.lines[i] = strings.ReplaceAll(block, "/var/lock/", read.dir+"/")
	}
	p.env = "XDG_STATE_HOME=" + read.dir
	return p
}

// start runs a command line of the page as a process of the fleet.
func (p flockPage) start(f *pageprogram.Fleet, line int) *pageprogram.Process {
	return f.StartCommand(p.lines[line], exec.Command("sh", "-c", p.lines[line]), p.env, "LEASEKEEPER_STORE=")
}

// Each two command lines that are in use at the same time during the change exclude each other. The first and the last
// one do not, which is why there is one in between.
func TestCommandsOfTheChangeFromFlockNeverMeet(t *testing.T) {
	p := newFlockPage(t)
	for first := range p.lines {
		for second := range p.lines {
			f := pageprogram.NewFleet(t)
			one := p.start(f, first)
			one.Works()
			if first-second > 1 || second-first > 1 {
				p.start(f, second).Overlaps()
				one.Finish()
				continue
			}
			p.start(f, second).Refused(1, "")
			one.Finish()
			next := p.start(f, second)
			next.Works()
			next.Finish()
		}
	}
}

func TestFlockOnAReplacedFileIsAnotherLock(t *testing.T) {
	p := newFlockPage(t)
	f := pageprogram.NewFleet(t)
	one := p.start(f, 0)
	one.Works()
	file := strings.Fields(p.lines[0])[2]
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.start(f, 0).Overlaps()
	one.Finish()
}
