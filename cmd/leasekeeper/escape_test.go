//go:build linux || darwin

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// hostileText contains everything that a terminal would obey: escape sequences of one and of two bytes, ends of lines,
// text from right to left, and DEL.
const hostileText = "\x1b]0;owned\x07\u009b31m\r\nleasekeeper: all is well\t\u202e\x7f"

// checkPrinted fails if the text contains anything that a terminal would obey, or if hostileText ended a line.
func checkPrinted(t *testing.T, what, printed string) {
	t.Helper()
	for i, r := range printed {
		if r != '\n' && !unicode.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(printed[i:], "\ufffd") {
			t.Errorf("%s prints %U raw: %q", what, r, printed)
			return
		}
	}
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "leasekeeper: all is well") {
			t.Errorf("%s prints a line of hostileText as its own: %q", what, printed)
		}
	}
}

// hostileArguments are command lines of every command that prints text from a store or a server. NAME, TOKEN and ID
// stand for arguments.
var hostileArguments = map[string][]string{
	"acquire":             {"acquire NAME --nonblock", "acquire NAME --wait 0.05 -o json"},
	"renew":               {"renew NAME TOKEN", "renew NAME 999999", "renew NAME TOKEN -o json"},
	"release":             {"release NAME 999999"},
	"token check":         {"token check NAME 999999", "token check NAME 999999 -o json", "token check NAME TOKEN"},
	"run":                 {"run NAME --nonblock -- true", "run NAME --wait 0.05 -- true"},
	"ls":                  {"ls", "ls -o json"},
	"show":                {"show NAME", "show NAME -o json"},
	"history":             {"history NAME", "history NAME -o json"},
	"watch":               {"watch", "watch -o json"},
	"transfer":            {"transfer NAME", "transfer NAME 999999", "transfer NAME --to x"},
	"mark":                {"mark NAME", "mark NAME -o json", "mark NAME --set 5"},
	"pin":                 {"pin NAME --reason x", "pin NAME --reason x -o json"},
	"unpin":               {"unpin NAME", "unpin NAME -o json"},
	"revoke":              {"revoke NAME 999999 --reason x", "revoke NAME --reason x --now"},
	"floor show":          {"floor show"},
	"floor raise":         {"floor raise 5"},
	"collect":             {"collect"},
	"move":                {"move --from STORE --to memory:TestOutputOfEveryCommandIsEscaped", "move --from STORE --to memory:TestOutputOfEveryCommandIsEscaped -o json"},
	"status":              {"status", "status -o json"},
	"health":              {"health", "health -o json", "health --live"},
	"found":               {"found"},
	"snapshot save":       {"snapshot save", "snapshot save -o json"},
	"doctor":              {"doctor --clock-interval 1ms", "doctor --clock-interval 1ms -o json"},
	"transfer-leadership": {"transfer-leadership", "transfer-leadership -o json", "transfer-leadership nobody"},
	"member list":         {"member list", "member list -o json"},
	"member add":          {"member add x --peer h:1", "member add x --peer h:1 -o json", "member add x --peer h:1 --learner"},
	"member promote":      {"member promote ID", "member promote ID -o json", "member promote nobody"},
	"member update":       {"member update ID --peer h:1", "member update ID --peer h:1 -o json"},
	"member remove":       {"member remove ID", "member remove ID -o json"},
	"lease grant":         {"lease grant 60", "lease grant 60 -o json"},
	"lease list":          {"lease list", "lease list -o json", "lease list --quiet"},
	"lease show":          {"lease show ID", "lease show ID -o json"},
	"lease revoke":        {"lease revoke ID", "lease revoke ID -o json"},
	"user list":           {"user list", "user list -o json"},
	"user show":           {"user show x", "user show x -o json"},
	"user add":            {"user add x --no-password", "user add x --no-password -o json"},
	"user password":       {"user password x"},
	"user remove":         {"user remove x", "user remove x -o json"},
	"user grant":          {"user grant x y", "user grant x y -o json"},
	"user revoke":         {"user revoke x y", "user revoke x y -o json"},
	"role list":           {"role list", "role list -o json"},
	"role show":           {"role show x", "role show x -o json"},
	"role add":            {"role add x", "role add x -o json"},
	"role remove":         {"role remove x", "role remove x -o json"},
	"role grant":          {"role grant x --name-prefix a --right hold", "role grant x --key-prefix a --permission read -o json"},
	"role revoke":         {"role revoke x --name-prefix a", "role revoke x --single-key a -o json"},
	"audit":               {"audit", "audit -o json", "audit --by x"},
	"access status":       {"access status", "access status -o json"},
	"access unowned":      {"access unowned", "access unowned -o json"},
	"user quota":          {"user quota x", "user quota x -o json"},
	"user set-quota":      {"user set-quota x --leases 5", "user set-quota x --leases 5 -o json"},
	"access enable":       {"access enable", "access enable -o json"},
	"access disable":      {"access disable", "access disable -o json"},
}

// silent are the commands that print no text from a store or a server. TestLogIsEscaped covers the log of serve. The console
// prints only its link; its pages are covered where they are made. The demo and its hidden commands talk to servers of their
// own only.
var silent = []string{"serve", "console", "demo", "demo scenario", "demo tied", "demo worker", "manpages", "snapshot", "snapshot inspect", "snapshot restore", "restore", "recover", "import", "help", "version", "explain", "schema", "lease", "member", "user", "role", "access", "token", "floor"}

func TestEveryCommandHasAHostileCommandLine(t *testing.T) {
	var visit func(c *cobra.Command, path string)
	visit = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			visit(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		if path != "" && !slices.Contains(silent, path) && hostileArguments[path] == nil {
			t.Errorf("hostileArguments has no command line of `%s`", path)
		}
	}
	visit(newRoot(), "")
}

// Every command runs against stores and servers whose every text is hostile, and with hostile arguments.
func TestOutputOfEveryCommandIsEscaped(t *testing.T) {
	endpoints := make(map[codes.Code]string)
	for _, answer := range hostileAnswers {
		endpoints[answer] = hostileServer(t, answer)
	}
	for command, lines := range hostileArguments {
		t.Run(command, func(t *testing.T) {
			t.Parallel()                          // the commands mostly wait
			database, token := hostileDatabase(t) // its own database, because some commands end the lease in it
			for _, line := range lines {
				runHostile(t, line, database, token, "sqlite")
				for answer, endpoint := range endpoints {
					for _, scheme := range []string{"leasekeeper", "etcd"} {
						runHostile(t, line, scheme+"://"+endpoint+"/", "1", fmt.Sprintf("%s answering %v", scheme, answer))
					}
				}
			}
			words := append(strings.Fields(command), hostileText, hostileText, "--timeout", "200ms")
			printed, _ := printedBy(t, words, time.Second)
			checkPrinted(t, fmt.Sprintf("%q", words), printed)
			printed, _ = printedBy(t, append(strings.Fields(command), "--"+hostileText), time.Second)
			checkPrinted(t, command+" with a flag", printed)
		})
	}
}

// hostileAnswers are the codes that the hostile servers answer with. Each leads to another kind of error.
var hostileAnswers = []codes.Code{codes.OK, codes.Unavailable, codes.InvalidArgument, codes.Unimplemented}

// runHostile runs a command line against a store or a server whose every text is hostile.
func runHostile(t *testing.T, line, store, token, what string) {
	t.Helper()
	words := strings.Fields(line)
	ofNames := !slices.Contains([]string{"status", "transfer-leadership", "found", "lease", "member", "user", "role", "access", "audit", "move"}, words[0])
	if !ofNames && words[0] != "move" && !strings.HasPrefix(store, "leasekeeper:") {
		return
	}
	flags := []string{}
	switch {
	case words[0] == "run" || words[0] == "move":
		flags = append(flags, "--store", store)
		if words[0] == "move" {
			flags = []string{"--timeout", "200ms"}
		}
	case ofNames:
		flags = append(flags, "--store", store, "--timeout", "200ms")
	default:
		endpoint := strings.TrimSuffix(strings.TrimPrefix(store, "leasekeeper://"), "/")
		flags = append(flags, "--endpoint", endpoint, "--timeout", "200ms")
	}
	for i, word := range words {
		words[i] = strings.NewReplacer("NAME", "jobs/hostile", "TOKEN", token, "ID", "1", "STORE", store).Replace(word)
	}
	if i := slices.Index(words, "--"); i >= 0 {
		words = slices.Insert(words, i, flags...)
	} else {
		words = append(words, flags...)
	}
	limit := time.Second // some commands wait forever for a useful answer
	if what == "sqlite" && words[0] != "watch" {
		limit = startLimit
	}
	printed, code := printedBy(t, words, limit)
	if printed == "" && code == command.ExitDone {
		t.Errorf("%s (%s) prints nothing, so the test checks nothing", line, what)
	}
	checkPrinted(t, fmt.Sprintf("`%s` (%s, exit code %d)", line, what, code), printed)
}

// printedBy returns the output of a command and its exit code. Commands that change how this process handles signals,
// or that do not end by themselves, run in a process of their own for at most limit.
func printedBy(t *testing.T, words []string, limit time.Duration) (printed string, code int) {
	t.Helper()
	if !slices.Contains([]string{"run", "watch", "acquire", "serve"}, words[0]) {
		var out bytes.Buffer
		code := run(words, &out, &out)
		return out.String(), code
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "leasekeeper", words...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// hostileDatabase returns the URL of a store in which the record of jobs/hostile is hostile, and the token in it.
func hostileDatabase(t *testing.T) (store, token string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leases.db")
	store = settings.FileStore(path)
	var stdout, stderr strings.Builder
	if run([]string{"acquire", "jobs/hostile", "--ttl", "1h", "--store", store}, &stdout, &stderr) != command.ExitDone {
		t.Fatal(stderr.String())
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	card, err := json.Marshal(map[string]any{"host": hostileText, "pid": 7, "text": hostileText})
	if err != nil {
		t.Fatal(err)
	}
	pins, _ := json.Marshal([]string{hostileText})
	past, _ := json.Marshal([]map[string]any{{"token": 1, "holder": hostileText, "why": hostileText, "note": hostileText}})
	done, err := db.Exec("UPDATE leasekeeper_lease SET holder = ?, card = ?, pins = ?, past = ?, revoked = ?", hostileText, string(card), string(pins), string(past), hostileText)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return store, strings.TrimSpace(stdout.String())
}

// hostileServer serves every gRPC method that this program knows. It fills every text of its answers with hostileText,
// or, if answer is not OK, refuses with that message.
func hostileServer(t *testing.T, answer codes.Code) (endpoint string) {
	t.Helper()
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil || answer != codes.OK {
			return status.Error(max(answer, codes.Unknown), hostileText)
		}
		about := found.(protoreflect.MethodDescriptor)
		request, response := messageOf(about.Input()), messageOf(about.Output())
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		fillHostile(response.ProtoReflect(), 0)
		if err := stream.SendMsg(response); err != nil || !about.IsStreamingServer() {
			return err
		}
		return status.Error(codes.Unavailable, hostileText)
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func messageOf(about protoreflect.MessageDescriptor) proto.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(about.FullName())
	if err != nil {
		panic(fmt.Sprintf("no Go type of %s: %v", about.FullName(), err))
	}
	return found.New().Interface()
}

// fillHostile sets every field of a message: texts to hostileText, numbers to one that is large enough for a time.
func fillHostile(m protoreflect.Message, depth int) {
	const deepest, number = 5, 60_000
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value := func() (protoreflect.Value, bool) {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(hostileText), true
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(hostileText)), true
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true), true
			case protoreflect.Int32Kind:
				return protoreflect.ValueOfInt32(number), true
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64(number), true
			case protoreflect.Uint64Kind:
				return protoreflect.ValueOfUint64(number), true
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(1), true
			}
			return protoreflect.Value{}, false
		}
		switch {
		case f.IsMap():
		case f.Kind() == protoreflect.MessageKind && depth == deepest:
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			fillHostile(m.Mutable(f).List().AppendMutable().Message(), depth+1)
		case f.Kind() == protoreflect.MessageKind:
			fillHostile(m.Mutable(f).Message(), depth+1)
		case f.IsList():
			if v, ok := value(); ok {
				m.Mutable(f).List().Append(v)
			}
		default:
			if v, ok := value(); ok {
				m.Set(f, v)
			}
		}
	}
}

// The errors that this module returns to programs are escaped, and so are the texts that programs log.
func TestErrorsAreEscaped(t *testing.T) {
	database, _ := hostileDatabase(t)
	stores := []string{database}
	for _, answer := range hostileAnswers {
		endpoint := hostileServer(t, answer)
		stores = append(stores, "leasekeeper://"+endpoint+"/", "etcd://"+endpoint+"/")
	}
	for _, store := range stores {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		k, err := leasekeeper.Open(ctx, store)
		if err != nil {
			checkPrinted(t, "Open "+store, err.Error())
			cancel()
			continue
		}
		errorsSeen := 0
		check := func(what string, err error) {
			if err != nil {
				errorsSeen++
				checkPrinted(t, what+" of "+store, err.Error())
			}
		}
		_, err = k.TryAcquire(ctx, "jobs/hostile")
		check("TryAcquire", err)
		_, err = k.Resume(ctx, "jobs/hostile", 1)
		check("Resume", err)
		i, err := k.Get(ctx, "jobs/hostile")
		check("Get", err)
		checkPrinted(t, "Holder of "+store, i.Holder.String())
		for i, err := range k.List(ctx, "") {
			check("List", err)
			checkPrinted(t, "Holder of "+store, i.Holder.String())
		}
		if errorsSeen == 0 {
			t.Errorf("%s: no error, so the test checks nothing", store)
		}
		k.Shutdown(ctx)
		cancel()
	}
}

// Only package console prints, so the escaping is in one place.
func TestOnlyPackageConsolePrints(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.go", "internal/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		files = append(files, found...)
	}
	prints := regexp.MustCompile(`\bfmt\.(Fprint|Print)|\bio\.WriteString|\bos\.Std(out|err)\.Write|\bjson\.NewEncoder`)
	for _, file := range files {
		// cluster.go prints into a hash, and manual.go into a text that becomes a file.
		elsewhere := file == "internal/settings/cluster.go" || file == "internal/manual/manual.go"
		if strings.HasSuffix(file, "_test.go") || filepath.Dir(file) == "internal/console" || elsewhere {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := prints.Find(text); found != nil {
			t.Errorf("%s has %s: use the functions of internal/console, which escape text", file, found)
		}
	}
}

// Lines for people and JSON for programs are escaped, and JSON keeps the value.
func TestLinesAndJSONAreEscaped(t *testing.T) {
	var text, forPrograms strings.Builder
	if err := console.PrintLine(&text, "%s\\ é 日", hostileText); err != nil {
		t.Fatal(err)
	}
	if want := `\x1b]0;owned\a\u009b31m\r\nleasekeeper: all is well\t\u202e\x7f\ é 日` + "\n"; text.String() != want {
		t.Errorf("printed %q and not %q", text.String(), want)
	}
	texts := []string{hostileText, "\U000e0001 é", "a\\b"}
	if err := console.PrintJSON(&forPrograms, texts); err != nil {
		t.Fatal(err)
	}
	checkPrinted(t, "JSON", forPrograms.String())
	var back []string
	if err := json.Unmarshal([]byte(forPrograms.String()), &back); err != nil || !slices.Equal(back, texts) {
		t.Errorf("%q, %v", back, err)
	}
	if got := backend.Printable(backend.Printable(hostileText)); got != backend.Printable(hostileText) {
		t.Errorf("escaping twice makes %q", got)
	}
}

// Operators read the log of a server on terminals too.
func TestLogIsEscaped(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		logger, err := settings.Server{LogLevel: "info", LogFormat: format}.Logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info(hostileText, hostileText, hostileText, "error", errors.New(hostileText))
		checkPrinted(t, "the log in "+format, out.String())
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("the log in %s does not have one line: %q", format, out.String())
		}
	}
}
