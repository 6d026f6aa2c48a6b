package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestEtcdctlEndpointHealth(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		took := regexp.MustCompile(`[0-9.]+(µs|ms|s)`)
		out := s.mustCtl("endpoint", "health")
		wantEqual(t, "health", took.ReplaceAllString(strings.TrimPrefix(out, s.grpcAddr), "TIME"),
			" is healthy: successfully committed proposal: took = TIME\n")
		out = s.mustCtl("endpoint", "health", "-w", "json")
		wantEqual(t, "json", took.ReplaceAllString(strings.Replace(out, s.grpcAddr, "HERE", 1), "TIME"),
			`[{"endpoint":"HERE","health":true,"took":"TIME"}]`+"\n")
		out = s.mustCtl("endpoint", "health", "--cluster")
		wantEqual(t, "all members", took.ReplaceAllString(strings.Replace(out, s.grpcAddr, "HERE", 1), "TIME"),
			"http://HERE is healthy: successfully committed proposal: took = TIME\n")
		wantEqual(t, "asking is no write", s.store().revision(), 1)
	})
}

func TestEtcdctlEndpointStatus(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		s.mustCtl("put", "a", "1")
		var answers []struct {
			Endpoint string
			Status   struct {
				Header struct {
					ClusterID uint64 `json:"cluster_id"`
					MemberID  uint64 `json:"member_id"`
					Revision  int64
					RaftTerm  uint64 `json:"raft_term"`
				}
				Version          string
				DBSize           int64
				DBSizeInUse      int64
				Leader           uint64
				RaftIndex        uint64
				RaftTerm         uint64
				RaftAppliedIndex uint64
				IsLearner        bool
				Errors           []string
			}
		}
		wantOK(t, "decoding", json.Unmarshal([]byte(s.mustCtl("endpoint", "status", "-w", "json")), &answers))
		wantEqual(t, "endpoints", len(answers), 1)
		wantEqual(t, "endpoint", answers[0].Endpoint, s.grpcAddr)
		st := answers[0].Status
		wantEqual(t, "revision", st.Header.Revision, 2)
		wantEqual(t, "leader", st.Leader, st.Header.MemberID)
		wantEqual(t, "learner", st.IsLearner, false)
		wantEqual(t, "errors", len(st.Errors), 0)
		wantEqual(t, "terms", st.RaftTerm, st.Header.RaftTerm)
		checkVersion(t, st.Version)
		if st.Header.ClusterID == 0 || st.DBSize <= 0 || st.DBSizeInUse <= 0 || st.DBSizeInUse > st.DBSize ||
			st.RaftIndex == 0 || st.RaftAppliedIndex == 0 || st.RaftAppliedIndex > st.RaftIndex || st.RaftTerm == 0 {
			t.Errorf("a field is missing or implausible: %+v", st)
		}
		line := s.mustCtl("endpoint", "status")
		if want := fmt.Sprintf("%s, %x, %s, ", s.grpcAddr, st.Leader, st.Version); !strings.HasPrefix(line, want) {
			t.Errorf("endpoint status printed %q, want it to begin with %q", line, want)
		}
		fields := s.mustCtl("endpoint", "status", "-w", "fields")
		for _, want := range []string{`"Revision" : 2`, fmt.Sprintf(`"Leader" : %d`, st.Leader), `"Errors" : []`, `"IsLearner" : false`} {
			if !strings.Contains(fields, want+"\n") {
				t.Errorf("endpoint status -w fields printed\n%s\nwithout %s", fields, want)
			}
		}
	})
}

// checkVersion holds the reported version to what clients demand before they
// use newer calls: semantic, and 3.5 or later.
func checkVersion(t *testing.T, version string) {
	t.Helper()
	m := regexp.MustCompile(`^3\.(\d+)\.\d+$`).FindStringSubmatch(version)
	if m == nil {
		t.Errorf("version %q is not of the form 3.x.y", version)
	} else if minor, _ := strconv.Atoi(m[1]); minor < 5 {
		t.Errorf("version %q is older than 3.5", version)
	}
}

func TestEtcdctlMemberList(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		out := s.mustCtl("member", "list")
		fields := strings.Split(strings.TrimSuffix(out, "\n"), ", ")
		if len(fields) != 6 {
			t.Fatalf("member list printed %q", out)
		}
		status := s.mustCtl("endpoint", "status")
		wantEqual(t, "id", fields[0], strings.Split(status, ", ")[1])
		wantEqual(t, "state", fields[1], "started")
		if fields[2] == "" {
			t.Error("the member has no name")
		}
		wantEqual(t, "client URL", fields[4], "http://"+s.grpcAddr)
		wantEqual(t, "learner", fields[5], "false")

		var list struct {
			Header  map[string]any
			Members []struct {
				ID         uint64
				Name       string
				ClientURLs []string
			}
		}
		wantOK(t, "decoding", json.Unmarshal([]byte(s.mustCtl("member", "list", "-w", "json")), &list))
		wantEqual(t, "members", len(list.Members), 1)
		wantEqual(t, "id", fmt.Sprintf("%x", list.Members[0].ID), fields[0])
		wantEqual(t, "name", list.Members[0].Name, fields[2])
		wantEqual(t, "client URLs", fmt.Sprint(list.Members[0].ClientURLs), "[http://"+s.grpcAddr+"]")
		if _, given := list.Header["revision"]; given {
			t.Errorf("the header of a member list carries a revision: %v", list.Header)
		}
	})
}

func TestEtcdctlAlarmList(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.wantCtl("", "alarm", "list")
		s.wantCtl(`{"header":`+jsonHeader("1")+"}\n", "alarm", "list", "-w", "json")
	})
}
