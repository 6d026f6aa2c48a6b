package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// endLimit bounds how long a scenario may take to end its processes after a signal.
const endLimit = 20 * time.Second

// Commands returns the commands of this package. Most are hidden: the demo starts them itself.
func Commands() []*cobra.Command {
	keep, withConsole := false, true
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine what happens when holders die, stop or lose their network",
		Long: `Run a cluster of three members and two workers that want one name, as processes of this machine. Kill the holder,
kill the leader, pause a holder, cut one off from the network, and let one release the name. Print who held the name,
when and with which token, and which write the fence refused. It takes about half a minute.

The demo uses free ports of 127.0.0.1, and writes only to a temporary directory. It ends all its processes and removes
all its files, also after Ctrl-C. The exit code is 0 only if all facts at the end hold.`,
		Example: `  leasekeeper demo
  leasekeeper demo --keep    # then look around until Ctrl-C`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args := []string{"demo", "scenario", fmt.Sprintf("--keep=%v", keep), fmt.Sprintf("--console=%v", withConsole)}
			return watchOver(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "after the summary, keep everything running until Ctrl-C")
	cmd.Flags().BoolVar(&withConsole, "console", true, "open the web console too, and print its link")
	cmd.AddCommand(newScenario(), newTied(), newWorker())
	return []*cobra.Command{cmd}
}

// watchOver runs the process of the scenario. The first signal, or the end of ctx, asks the scenario to end; a second
// signal kills it. watchOver returns when the scenario has ended. If it was killed, watchOver kills the processes that
// it left, and removes its directory.
func watchOver(ctx context.Context, args []string, out, messages io.Writer) error {
	dir := filepath.Join(os.TempDir(), "leasekeeper-demo-"+rand.Text()) // nobody can guess the name and take it before
	scenario, err := selfCommand(append(args, dir)...)
	if err != nil {
		return err
	}
	scenario.Stderr = messages
	ownGroup(scenario)
	input, err := scenario.StdinPipe()
	if err != nil {
		return err
	}
	output, err := scenario.StdoutPipe()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, endSignals...)
	defer signal.Stop(signals)
	if err := scenario.Start(); err != nil {
		return command.Failed("the demo cannot start its own program: %v", err)
	}
	ended := make(chan struct{})
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		askToEnd(ctx, scenario.Process, input, signals, ended)
	}()
	printing := forward(out, output, input)
	close(ended)
	<-asking
	// Only Wait frees the ID of the process, so it is still that of the scenario's group.
	_, left := os.Stat(dir)
	if left == nil {
		killGroup(scenario.Process)
	}
	err = scenario.Wait()
	if left == nil {
		if failed := removeAll(dir); failed != nil {
			return command.Failed("the demo was killed and cannot remove its directory: %v; remove %s", failed, dir)
		}
	}
	return outcome(scenario, printing, err)
}

// forward copies the output of the scenario to out. It returns when the scenario has ended: no other process has that
// output open. If forward cannot write, it asks the scenario to end, and returns the error then.
func forward(out io.Writer, output io.Reader, input io.Closer) error {
	_, err := io.Copy(out, output)
	if err != nil {
		input.Close()
		io.Copy(io.Discard, output) // its error is that the output has ended
	}
	return err
}

// askToEnd ends the input of the scenario at the first signal or the end of ctx, and kills the scenario at the second
// signal or when it does not end in time. It returns when ended is closed, which must be before the scenario is reaped.
func askToEnd(ctx context.Context, scenario *os.Process, input io.Closer, signals <-chan os.Signal, ended <-chan struct{}) {
	select {
	case <-signals:
	case <-ctx.Done():
	case <-ended:
		return
	}
	input.Close()
	select {
	case <-signals:
	case <-time.After(endLimit):
	case <-ended:
		return
	}
	killGroup(scenario)
	<-ended
}

// removeAll removes the directory of a scenario that was killed. Its processes end at this moment, so removeAll tries
// again for a while.
func removeAll(dir string) (err error) {
	const tries, pause = 50, 100 * time.Millisecond
	for range tries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(pause)
	}
	return err
}

// outcome returns the error of the demo. printing is the error of writing what the scenario printed.
func outcome(scenario *exec.Cmd, printing, err error) error {
	if printing != nil {
		return command.Failed("the demo cannot print: %v; it has ended its processes and removed its files", printing)
	}
	if err == nil {
		return nil
	}
	if code := scenario.ProcessState.ExitCode(); code > 0 {
		return &command.Error{Code: code} // the scenario has printed why
	}
	return command.Failed("the demo was killed (%v); it has ended its processes and removed its files", err)
}
