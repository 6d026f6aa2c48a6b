package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files of the scripts (cmp only)")

// TestScripts runs testdata/script/*.txtar. Besides the usual commands they have:
//
//	start [args]          run `leasekeeper serve` with free ports until it is ready, and set $ENDPOINT,
//	                      $PLAIN (without https://) and $HTTP; the output is in the files server.out and server.err
//	halt term|int|kill CODE  end the server by that signal; it must exit with the code
//	members NAME... [-- FLAGS]  run one cluster with a server for each name until all are ready; $A is the endpoint of a, and so on.
//	                      Each server runs in a directory of its name. -NAME is a member that does not run:
//	                      then the other servers are started without waiting until they are ready
//	begin NAME...         start servers for members that do not run, without waiting for them
//	join [NAME...]        start servers for members that do not run, and wait until all are ready
//	spare NAME            set $PEER_NAME to a free address for a member that is not there yet
//	grow NAME             start a server that joins the cluster under that name and address, and wait until it is ready
//	stopone NAME term|int|kill CODE  is halt for one member
//	ended NAME CODE       wait until a member has ended by itself, with that code
//	like FILE             stdout matches the file, in which <id> stands for an id, <n> for a number,
//	                      <size> for a size, <time> for a duration, and <any> for any text
//	exits CODE CMD ARGS   run a program, which must exit with the code
//	setid NAME            set the variable to the id in stdout
//	settoken NAME         set the variable to stdout, which is a token
//	await PATTERN CMD ARGS  run a program repeatedly until its output matches; its exit code does not matter
//	spoil FILE            overwrite bytes in the middle of a file, which may be a pattern
//	certify NAME          make certificates: NAME-ca.pem, and NAME.pem with NAME.key, which NAME-ca.pem has signed
func TestScripts(t *testing.T) { runScripts(t, "testdata/script", nil) }

// TestScriptsOnSQLite runs testdata/database/*.txtar. Each script has three new databases, $A, $B and $C, of the kind
// $KIND. $SAME_A is another URL of the database $A.
func TestScriptsOnSQLite(t *testing.T) {
	runScripts(t, "testdata/database", func(env *testscript.Env) error {
		env.Setenv("KIND", "sqlite")
		for _, name := range databaseNames {
			env.Setenv(name, settings.FileStore(filepath.Join(env.WorkDir, name+".db")))
		}
		env.Setenv("SAME_A", env.Getenv("A")+"?poll=1s")
		return nil
	})
}

var databaseNames = []string{"A", "B", "C"}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			// Nothing that the user keeps may show in a script. A command without a store uses this directory.
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			if setup == nil {
				return nil
			}
			return setup(env)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start":    scriptStart,
			"halt":     scriptHalt,
			"members":  scriptMembers,
			"begin":    scriptBegin,
			"join":     scriptJoin,
			"spare":    scriptSpare,
			"grow":     scriptGrow,
			"stopone":  scriptStopOne,
			"ended":    scriptEnded,
			"like":     scriptLike,
			"exits":    scriptExits,
			"setid":    scriptSetID,
			"settoken": scriptSetToken,
			"await":    scriptAwait,
			"spoil":    scriptSpoil,
			"certify":  scriptCertify,
		},
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// serversOfScripts holds the running server of each script.
var serversOfScripts = newTable[*testscript.TestScript, *running]()

func scriptStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("use ! exec leasekeeper serve")
	}
	dir := ts.MkAbs(".")
	r, err := launch(launchOptions{
		dir:  dir,
		env:  environment(ts),
		args: args,
	})
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Defer(r.kill)
	serversOfScripts.set(ts, r)
	ts.Setenv("ENDPOINT", r.endpoint)
	ts.Setenv("PLAIN", strings.TrimPrefix(r.endpoint, "https://"))
	ts.Setenv("HTTP", r.http)
}

// serverVariables returns the environment variables that a server reads: one for each of its flags.
func serverVariables() (names []string) {
	serve, _, _ := newRoot().Find([]string{"serve"})
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		names = append(names, "LEASEKEEPER_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	})
	return names
}

// environment returns the variables that a server of the script receives.
func environment(ts *testscript.TestScript) []string {
	env := []string{"PATH=" + ts.Getenv("PATH")}
	for _, name := range serverVariables() {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func scriptHalt(ts *testscript.TestScript, neg bool, args []string) {
	r := serversOfScripts.get(ts)
	if neg || r == nil || len(args) != 2 {
		ts.Fatalf("usage: halt term|int|kill CODE, with a server running")
	}
	haltServer(ts, r, "server.err", args)
}

// haltServer ends a server by a signal, and checks its exit code.
func haltServer(ts *testscript.TestScript, r *running, log string, args []string) {
	signals := map[string]syscall.Signal{"term": syscall.SIGTERM, "int": syscall.SIGINT, "kill": syscall.SIGKILL}
	want, err := strconv.Atoi(args[1])
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Check(r.cmd.Process.Signal(signals[args[0]]))
	if got := r.wait(); got != want {
		ts.Fatalf("ended with code %d, want %d; it wrote:\n%s", got, want, ts.ReadFile(log))
	}
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exited with code %d, want %d; it wrote:\n%s", got, want, ts.ReadFile("stderr"))
	}
}

var placeholders = strings.NewReplacer(
	"<id>", "[0-9a-f]{16}", "<n>", "[0-9]+", "<size>", `[0-9.]+ (B|[KMG]iB)`, "<time>", "[0-9hms]+ *", "<any>", ".*")

func scriptLike(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: like FILE")
	}
	got := strings.Split(strings.TrimRight(ts.ReadFile("stdout"), "\n"), "\n")
	want := strings.Split(strings.TrimRight(ts.ReadFile(args[0]), "\n"), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			ts.Fatalf("%d lines instead of %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
		line := os.Expand(want[i], ts.Getenv)
		pattern := "^" + placeholders.Replace(strings.NewReplacer(`\<`, "<", `\>`, ">").Replace(regexp.QuoteMeta(line))) + "$"
		if !regexp.MustCompile(pattern).MatchString(got[i]) {
			ts.Fatalf("line %d is %q, which is not like %q; all of it:\n%s", i+1, got[i], line, strings.Join(got, "\n"))
		}
	}
}

var anyID = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

func scriptSetID(ts *testscript.TestScript, neg bool, args []string) {
	id := anyID.FindString(ts.ReadFile("stdout"))
	if neg || len(args) != 1 || id == "" {
		ts.Fatalf("usage: setid NAME, after a command that printed an id")
	}
	ts.Setenv(args[0], id)
}

func scriptSetToken(ts *testscript.TestScript, neg bool, args []string) {
	token := strings.TrimSpace(ts.ReadFile("stdout"))
	if _, err := strconv.ParseUint(token, 10, 64); neg || len(args) != 1 || err != nil {
		ts.Fatalf("usage: settoken NAME, after a command that printed a token")
	}
	ts.Setenv(args[0], token)
}

func scriptSpoil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: spoil FILE")
	}
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	if err != nil || len(names) == 0 {
		ts.Fatalf("no file matches %s: %v", args[0], err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		ts.Check(err)
		middle := data[len(data)/3 : len(data)-len(data)/3]
		copy(middle, bytes.Repeat([]byte{0xA5}, len(middle)))
		ts.Check(os.WriteFile(name, data, 0o600))
		fmt.Fprintf(ts.Stderr(), "overwrote %d bytes of %s\n", len(middle), name)
	}
}

func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN COMMAND [ARGUMENT...]")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // only its output matters
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			if c := clustersOfScripts.get(ts); c != nil {
				ts.Logf("members that have ended: %v", c.failures(ts))
			}
			ts.Fatalf("its output never had %q:\n%s", args[0], ts.ReadFile("stdout"))
		}
	}
}
