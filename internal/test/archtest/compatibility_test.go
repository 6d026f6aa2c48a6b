package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
)

// compatibility is a page with a heading of the second level for each service. A method has a heading of the third level,
// or a row in a table whose first cell begins with its name. The first cells of the rows below list fields and values of
// enums, in backticks; the second cell is one of states.
const compatibility = "docs/compatibility.md"

var (
	backticked = regexp.MustCompile("`([^`]*)`")
	states     = []string{"supported", "different", "refused"}
	// verdict begins the text below the heading of a method.
	verdict = regexp.MustCompile(`^\*\*(Supported|Different|Refused)\.\*\*`)
)

// compatRow is one row of a table: the names in its first cell, the state in its second, and the text of its last.
type compatRow struct {
	names []string
	state string
	how   string
	line  string
}

// compatEntry holds the text and the rows of the page for one method.
type compatEntry struct {
	judged bool
	rows   []compatRow
}

// compatEntries reads the page. The key is Service.Method.
func compatEntries(page string) map[string]*compatEntry {
	entries := make(map[string]*compatEntry)
	entry := func(service, method string) *compatEntry {
		key := service + "." + method
		if entries[key] == nil {
			entries[key] = new(compatEntry)
		}
		return entries[key]
	}
	service, method := "", ""
	for _, line := range strings.Split(page, "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			service, method = name, ""
			continue
		}
		if name, ok := strings.CutPrefix(line, "### "); ok {
			method = name
			entry(service, method)
			continue
		}
		if verdict.MatchString(line) && method != "" {
			entry(service, method).judged = true
		}
		row, ok := parseCompatRow(line)
		if !ok || len(row.names) == 0 {
			continue
		}
		if method != "" {
			e := entry(service, method)
			e.rows = append(e.rows, row)
			continue
		}
		e := entry(service, row.names[0])
		e.judged = true
		row.names = row.names[1:]
		e.rows = append(e.rows, row)
	}
	return entries
}

func parseCompatRow(line string) (compatRow, bool) {
	cells := strings.Split(line, "|")
	if len(cells) < 4 || strings.TrimSpace(cells[0]) != "" {
		return compatRow{}, false
	}
	row := compatRow{state: strings.TrimSpace(cells[2]), how: strings.TrimSpace(cells[len(cells)-2]), line: line}
	for _, match := range backticked.FindAllStringSubmatch(cells[1], -1) {
		row.names = append(row.names, match[1])
	}
	return row, true
}

// compatOptions returns the fields of a request by name, each with its possible values if it is an enum. The name of a
// field of an inner message begins with that message's name. Inner messages that are requests themselves are skipped:
// they have an entry of their own.
func compatOptions(m protoreflect.MessageDescriptor, requests map[protoreflect.FullName]bool) map[string][]string {
	options := make(map[string][]string)
	var walk func(m protoreflect.MessageDescriptor, prefix string)
	seen := map[protoreflect.FullName]bool{m.FullName(): true}
	walk = func(m protoreflect.MessageDescriptor, prefix string) {
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			name := prefix + string(field.Name())
			options[name] = nil
			if enum := field.Enum(); enum != nil {
				for j := range enum.Values().Len() {
					options[name] = append(options[name], string(enum.Values().Get(j).Name()))
				}
			}
			if inside := field.Message(); inside != nil && !seen[inside.FullName()] && !requests[inside.FullName()] {
				seen[inside.FullName()] = true
				walk(inside, string(inside.Name())+".")
			}
		}
	}
	walk(m, "")
	return options
}

// unlisted finds what the API has and the page lacks, and the reverse.
func unlisted(page string, methods []protoreflect.MethodDescriptor) []breach {
	entries := compatEntries(page)
	requests := make(map[protoreflect.FullName]bool)
	for _, method := range methods {
		requests[method.Input().FullName()] = true
	}
	var found []breach
	for _, method := range methods {
		key := string(method.Parent().Name()) + "." + string(method.Name())
		entry := entries[key]
		if entry == nil {
			found = append(found, breach{key, "is not listed"})
			continue
		}
		if !entry.judged {
			found = append(found, breach{key, "is not said to be supported, different or refused"})
		}
		found = append(found, unlistedOptions(key, entry, compatOptions(method.Input(), requests))...)
	}
	return found
}

func unlistedOptions(key string, entry *compatEntry, options map[string][]string) []breach {
	var found []breach
	listed := make(map[string]bool) // fields, and fields with values behind a blank
	for _, row := range entry.rows {
		if !slices.Contains(states, row.state) {
			found = append(found, breach{key, "has a row that is neither of " + strings.Join(states, ", ") + ": " + row.line})
		}
		var fields []string
		for _, name := range row.names {
			if _, ok := options[name]; ok {
				fields = append(fields, name)
				listed[name] = true
			}
		}
		for _, name := range row.names {
			known := slices.Contains(fields, name)
			for _, field := range fields {
				if slices.Contains(options[field], name) {
					listed[field+" "+name] = true
					known = true
				}
			}
			if !known {
				found = append(found, breach{key, "has no option " + name})
			}
		}
	}
	for field, values := range options {
		if !listed[field] {
			found = append(found, breach{key, "has an option " + field + " that is not listed"})
		}
		for _, value := range values {
			if listed[field] && !listed[field+" "+value] {
				found = append(found, breach{key, "has a value " + value + " of " + field + " that is not listed"})
			}
		}
	}
	return found
}

// breaks is the word by which the last cell of a refused row says what the refusal breaks, and because begins the reason for it.
var (
	breaks  = regexp.MustCompile(`\bbreaks\b`)
	because = regexp.MustCompile(`\bbecause\b`)
)

// unexplained finds rows of all tables that do not say how they differ from etcd, or what a refusal breaks and why.
func unexplained(page string) []breach {
	var found []breach
	for i, line := range strings.Split(page, "\n") {
		row, ok := parseCompatRow(line)
		where := fmt.Sprintf("%s:%d", compatibility, i+1)
		switch {
		case !ok:
		case row.state == "different" && row.how == "":
			found = append(found, breach{where, "does not say what differs"})
		case row.state == "refused" && !breaks.MatchString(row.how):
			found = append(found, breach{where, "does not say what the refusal breaks"})
		case row.state == "refused" && !because.MatchString(row.how):
			found = append(found, breach{where, "gives no reason: write because"})
		}
	}
	return found
}

func TestCompatibilityExplainsEveryDifference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, compatibility))
	if err != nil {
		t.Fatal(err)
	}
	holds(t, unexplained(string(page)))
}

func TestUnexplainedDifferencesAreCaught(t *testing.T) {
	holds(t, unexplained("| path | state | how |\n|---|---|---|\n| `/a` | supported | |\n| `/b` | different | so |\n| `/c` | refused | It breaks d, because e. |\n"))
	catches(t, unexplained("# Page\n\n| `/b` | different | |\n"), compatibility+":3", "what differs")
	catches(t, unexplained("| `/c` | refused | |\n"), compatibility+":1", "breaks")
	catches(t, unexplained("| `/c`: breaks | refused | 404. |\n"), compatibility+":1", "breaks")
	catches(t, unexplained("| `/c` | refused | It breaks d. |\n"), compatibility+":1", "because")
}

// apiMethods are those of all services that clients of etcd know.
func apiMethods() []protoreflect.MethodDescriptor {
	var methods []protoreflect.MethodDescriptor
	for _, m := range []proto.Message{
		&pb.RangeRequest{}, &v3lockpb.LockRequest{}, &v3electionpb.LeaderRequest{}, &healthpb.HealthCheckRequest{},
	} {
		services := m.ProtoReflect().Descriptor().ParentFile().Services()
		for i := range services.Len() {
			for j := range services.Get(i).Methods().Len() {
				methods = append(methods, services.Get(i).Methods().Get(j))
			}
		}
	}
	return methods
}

func TestCompatibilityListsTheWholeAPI(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, compatibility))
	if err != nil {
		t.Fatal(err)
	}
	methods := apiMethods()
	if len(methods) < 50 {
		t.Fatalf("etcd's API has only %d methods", len(methods))
	}
	holds(t, unlisted(string(page), methods))
}

func TestUnlistedOptionsAreCaught(t *testing.T) {
	var alarm []protoreflect.MethodDescriptor
	for _, method := range apiMethods() {
		if method.Name() == "Alarm" {
			alarm = append(alarm, method)
		}
	}
	const (
		heading = "## Maintenance\n\n### Alarm\n\n"
		judged  = heading + "**Different.** It is.\n\n| option | | |\n|---|---|---|\n"
		action  = "| `action`: `GET`, `ACTIVATE`, `DEACTIVATE` | supported | |\n"
		member  = "| `memberID` | different | so |\n"
		kinds   = "| `alarm`: `NONE`, `NOSPACE` | supported | |\n"
		corrupt = "| `alarm`: `CORRUPT` | refused | so |\n"
	)
	const all = judged + action + member + kinds + corrupt
	holds(t, unlisted(all, alarm))
	holds(t, unlisted("## Maintenance\n\n| `Alarm` `action` `GET` `ACTIVATE` `DEACTIVATE` `memberID` `alarm` `NONE` `NOSPACE` `CORRUPT` | refused | |\n", alarm))
	const where = "Maintenance.Alarm"
	catches(t, unlisted("## Other\n\n### Alarm\n", alarm), where, "not listed")
	catches(t, unlisted(heading+action+member+kinds+corrupt, alarm), where, "supported, different or refused")
	catches(t, unlisted(judged+action+kinds+corrupt, alarm), where, "memberID")
	catches(t, unlisted(judged+action+member+kinds, alarm), where, "CORRUPT")
	catches(t, unlisted(judged+action+"and `memberID` in the text\n"+kinds+corrupt, alarm), where, "memberID")
	catches(t, unlisted(all+"| `memberId` | supported | |\n", alarm), where, "no option memberId")
	catches(t, unlisted(all+"| `alarm` | maybe | |\n", alarm), where, "neither")
}
