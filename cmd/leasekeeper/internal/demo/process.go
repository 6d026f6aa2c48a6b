package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// child is a process of the demo that runs this program. Its parent must call end.
type child struct {
	name    string
	cmd     *exec.Cmd
	input   io.WriteCloser // its standard input; the child ends when the parent closes it
	log     string         // the file with its messages
	ending  atomic.Bool    // whether end was called
	done    chan struct{}  // closed when the process has ended and all its output is handled
	outcome error          // of the process; valid after done
}

// childConfig says what to start.
type childConfig struct {
	name string   // for messages and the name of its log
	dir  string   // its working directory, which receives the log
	args []string // its arguments
	// line receives each line that it prints, one after the other; nil appends them to the log.
	line func(process int, text []byte)
	// died is called if it ends although end was not called.
	died func(error)
}

// selfCommand returns a command that runs this program.
func selfCommand(args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, command.Failed("the demo cannot find its own program file: %v; start it by its full path", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Args[0] = os.Args[0] // tests start this program under another path
	return cmd, nil
}

// startChild starts a process.
func startChild(ctx context.Context, config childConfig) (*child, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cmd, err := selfCommand(config.args...)
	if err != nil {
		return nil, err
	}
	c := &child{name: config.name, cmd: cmd, log: filepath.Join(config.dir, config.name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = config.dir, environment(config.dir), log, log
	if c.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	var output io.ReadCloser
	if config.line != nil {
		cmd.Stdout = nil
		if output, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the demo cannot start %s: %w", config.name, err)
	}
	go c.follow(output, config)
	return c, nil
}

// follow handles the output of the process and waits for its end.
func (c *child) follow(output io.Reader, config childConfig) {
	if output != nil {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			config.line(c.cmd.Process.Pid, lines.Bytes())
		}
	}
	c.outcome = c.cmd.Wait()
	if !c.ending.Load() && config.died != nil {
		config.died(fmt.Errorf("%s has ended by itself (%v)", c.name, c.cmd.ProcessState))
	}
	close(c.done)
}

// order writes a line to the standard input of the process.
func (c *child) order(line string) error {
	if _, err := c.input.Write([]byte(line + "\n")); err != nil {
		return fmt.Errorf("the demo cannot reach %s: %w", c.name, err)
	}
	return nil
}

// end kills the process, and waits until it has ended and its output is handled.
func (c *child) end() {
	c.ending.Store(true)
	c.cmd.Process.Kill() // it may have ended
	<-c.done
	c.input.Close()
}

// environment returns the variables of a child. It drops the settings of leasekeeper and of systemd, so that the child
// has the flags only, and makes dir the directory for temporary files.
func environment(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		for _, prefix := range []string{"LEASEKEEPER_", "ETCD_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_"} {
			if strings.HasPrefix(strings.ToUpper(entry), prefix) {
				return true
			}
		}
		return false
	})
	return append(env, "TMPDIR="+dir, "TMP="+dir, "TEMP="+dir)
}

// newTied returns the command that runs another command of leasekeeper until its standard input ends.
func newTied() *cobra.Command {
	return &cobra.Command{
		Use: "tied COMMAND", Short: "Run a command of leasekeeper until standard input ends", Hidden: true,
		DisableFlagParsing: true,
		Args:               command.Between(1, 100, "a command and its arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			go obey(cmd.InOrStdin(), make(chan string)) // it ends with the process
			root := cmd.Root()
			root.SetArgs(args)
			return root.Execute()
		},
	}
}
