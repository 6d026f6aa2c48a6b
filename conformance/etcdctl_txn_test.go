package conformance

import (
	"strings"
	"testing"
)

// ctlTxn writes a txn as etcdctl reads it: conditions, then and else, each part
// ended by an empty line.
func ctlTxn(conditions, success, failure []string) string {
	var b strings.Builder
	for _, part := range [][]string{conditions, success, failure} {
		for _, line := range part {
			b.WriteString(line + "\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestEtcdctlTxn(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		id, _ := s.ctlGrant("600")
		s.mustCtl("put", "a", "1")                // 2
		s.mustCtl("put", "b", "1", "--lease", id) // 3
		for _, c := range []struct {
			conditions, success, failure []string
			want                         string
		}{
			{nil, []string{"get a"}, nil, "SUCCESS\n\na\n1\n"},
			{nil, nil, nil, "SUCCESS\n"},
			{[]string{`mod("a") = "2"`}, []string{"put a 2", "get a"}, []string{"get b"}, "SUCCESS\n\nOK\n\na\n2\n"}, // 4
			{[]string{`mod("a") = "2"`}, []string{"put a 3"}, []string{"get b", "get a"}, "FAILURE\n\nb\n1\n\na\n2\n"},
			{[]string{`create("x") = "0"`, `version("a") > "1"`, `value("a") = "2"`}, []string{"del a --prev-kv"}, nil, "SUCCESS\n\n1\na\n2\n"},                // 5
			{[]string{`value("a") != "2"`}, []string{"get b"}, []string{`put "a key" "a value"`}, "FAILURE\n\nOK\n"},                                           // 6
			{[]string{`c("a key") = "6"`, `m("a key") < "7"`, `ver("a key") = "1"`, `val("a key") > "a"`}, []string{`del --prefix ""`}, nil, "SUCCESS\n\n2\n"}, // 7
			{nil, []string{"get --prefix a", "del a"}, nil, "SUCCESS\n\n\n0\n"},
		} {
			r := s.ctlWithInput(ctlTxn(c.conditions, c.success, c.failure), "txn")
			if r.code != 0 || r.stdout != c.want {
				t.Errorf("txn %q %q %q\n got %d, %q, %s\nwant %q", c.conditions, c.success, c.failure, r.code, r.stdout, r.stderr, c.want)
			}
		}
		wantEqual(t, "revision", s.store().revision(), 7)
	})
}

func TestEtcdctlTxnFormatsAndErrors(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		r := s.ctlWithInput(ctlTxn(nil, []string{"put a 1", "get a", "del b"}, nil), "txn", "-w", "json")
		wantEqual(t, "json", plain(r.stdout), `{"header":`+jsonHeader("2")+`,"succeeded":true,"responses":[`+
			`{"Response":{"response_put":{"header":{"revision":2}}}},`+
			`{"Response":{"response_range":{"header":{"revision":2},"kvs":[{"key":"YQ==","create_revision":2,"mod_revision":2,"version":1,"value":"MQ=="}],"count":1}}},`+
			`{"Response":{"response_delete_range":{"header":{"revision":2}}}}]}`+"\n")
		for message, requests := range map[string][]string{
			textDuplicateKey:   {"put a 1", "put a 2"},
			textLeaseNotFound:  {"put a 1 --lease=99"},
			textKeyNotFound:    {"put x --ignore-value"},
			textKeyNotProvided: {`put "" 1`},
		} {
			r := s.ctlWithInput(ctlTxn(nil, requests, nil), "txn")
			wantEqual(t, "exit status", r.code, 1)
			if !strings.HasSuffix(strings.TrimSpace(r.stderr), "Error: "+message) {
				t.Errorf("txn %q printed %q, want it to end with %q", requests, r.stderr, message)
			}
		}
		wantEqual(t, "revision", s.store().revision(), 2)
	})
}
