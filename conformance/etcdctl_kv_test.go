package conformance

import (
	"testing"
)

func TestEtcdctlPut(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.wantCtl("OK\n", "put", "a", "1")
		s.wantCtl("OK\na\n1\n", "put", "a", "2", "--prev-kv")
		s.wantCtl("OK\n", "put", "b", "1", "--prev-kv")
		s.wantCtl(`{"header":`+jsonHeader("5")+"}\n", "put", "a", "3", "-w", "json")
		s.wantCtl(`{"header":`+jsonHeader("6")+`,"prev_kv":{"key":"YQ==","create_revision":2,"mod_revision":5,"version":3,"value":"Mw=="}}`+"\n",
			"put", "a", "4", "-w", "json", "--prev-kv")
		s.wantCtl(lines(`"ClusterID" : C`, `"MemberID" : M`, `"Revision" : 7`, `"RaftTerm" : T`, ""), "put", "a", "5", "-w", "fields")
		s.wantCtl("OK\n", "put", "a", "--ignore-value")
		s.wantCtl("OK\n", "put", "a", "6", "--ignore-lease")
		s.wantCtl("a\n6\n", "get", "a")
		s.wantCtlError(1, "etcdserver: key not found", "put", "x", "--ignore-value")
		s.wantCtlError(1, "etcdserver: requested lease not found", "put", "x", "1", "--lease=123")
		s.wantCtlError(1, "etcdserver: key is not provided", "put", "", "1")
	})
}

func TestEtcdctlGet(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.wantCtl("", "get", "a")
		s.wantCtl(`{"header":`+jsonHeader("1")+"}\n", "get", "a", "-w", "json")
		for _, kv := range [][2]string{{"b", "1"}, {"a", "3"}, {"a/1", "x"}, {"a/2", "y"}, {"b", "2"}} {
			s.mustCtl("put", kv[0], kv[1]) // 2 to 6
		}
		for _, c := range []struct {
			want string
			args []string
		}{
			{"a\n3\n", []string{"a"}},
			{"", []string{"none"}},
			{"a\n3\na/1\nx\na/2\ny\n", []string{"a", "--prefix"}},
			{"a/1\nx\na/2\ny\n", []string{"a/1", "b"}},
			{"a/2\ny\nb\n2\n", []string{"a/2", "--from-key"}},
			{"a\n3\na/1\nx\na/2\ny\nb\n2\n", []string{"", "--from-key"}},
			{"a\n3\na/1\nx\na/2\ny\nb\n2\n", []string{"", "--prefix"}},
			{"a\n3\na/1\nx\n", []string{"a", "--from-key", "--limit", "2"}},
			{"3\nx\ny\n", []string{"a", "--prefix", "--print-value-only"}},
			{"a\n\na/1\n\na/2\n\nb\n\n", []string{"a", "--from-key", "--keys-only"}},
			{"b\n\na/2\n\na/1\n\na\n\n", []string{"a", "--from-key", "--keys-only", "--order", "DESCEND"}},
			{"b\n\na/2\n\n", []string{"a", "--from-key", "--keys-only", "--sort-by", "MODIFY", "--order", "DESCEND", "--limit", "2"}},
			{"b\n\na\n\na/1\n\na/2\n\n", []string{"a", "--from-key", "--keys-only", "--sort-by", "CREATE"}},
			{"b\n\na\n\na/1\n\na/2\n\n", []string{"a", "--from-key", "--keys-only", "--sort-by", "VALUE"}},
			{"b\n1\n", []string{"b", "--rev", "5"}},
			{"", []string{"a/2", "--rev", "4"}},
			{"a/1\nx\n", []string{"a", "--prefix", "--min-mod-rev", "4", "--max-mod-rev", "4"}},
			{"a\n3\n", []string{"a", "--prefix", "--max-create-rev", "3"}},
			{"b\n2\n", []string{"b", "--consistency", "s"}},
		} {
			s.wantCtl(c.want, append([]string{"get"}, c.args...)...)
		}
		s.wantCtlError(1, "etcdserver: mvcc: required revision is a future revision", "get", "a", "--rev", "7")
	})
}

func TestEtcdctlGetFormats(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.mustCtl("put", "a", "1")
		s.mustCtl("put", "a/1", "x")
		s.mustCtl("put", "a", "2")
		s.wantCtl(`{"header":`+jsonHeader("4")+`,"kvs":[`+
			`{"key":"YQ==","create_revision":2,"mod_revision":4,"version":2,"value":"Mg=="},`+
			`{"key":"YS8x","create_revision":3,"mod_revision":3,"version":1,"value":"eA=="}],"count":2}`+"\n",
			"get", "a", "--prefix", "-w", "json")
		s.wantCtl(`{"header":`+jsonHeader("4")+`,"kvs":[{"key":"YQ==","create_revision":2,"mod_revision":4,"version":2,"value":"Mg=="}],"more":true,"count":2}`+"\n",
			"get", "a", "--prefix", "--limit", "1", "-w", "json")
		s.wantCtl(`{"header":`+jsonHeader("4")+`,"kvs":[{"key":"YQ==","create_revision":2,"mod_revision":4,"version":2}],"count":1}`+"\n",
			"get", "a", "--keys-only", "-w", "json")
		header := lines(`"ClusterID" : C`, `"MemberID" : M`, `"Revision" : 4`, `"RaftTerm" : T`, "")
		s.wantCtl(header+lines(`"More" : false`, `"Count" : 2`, ""), "get", "a", "--prefix", "--count-only", "-w", "fields")
		s.wantCtl(header+lines(`"Key" : "a"`, `"CreateRevision" : 2`, `"ModRevision" : 4`, `"Version" : 2`, `"Value" : "2"`, `"Lease" : 0`,
			`"More" : false`, `"Count" : 1`, ""), "get", "a", "-w", "fields")
	})
}

func TestEtcdctlDel(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		for _, k := range []string{"a", "a/1", "a/2", "b", "c", "d"} {
			s.mustCtl("put", k, "v-"+k) // 2 to 7
		}
		s.wantCtl("0\n", "del", "none")
		s.wantCtl("1\n", "del", "d")                                                   // 8
		s.wantCtl("2\na/1\nv-a/1\na/2\nv-a/2\n", "del", "a/", "--prefix", "--prev-kv") // 9
		s.wantCtl(`{"header":`+jsonHeader("10")+`,"deleted":2}`+"\n", "del", "a", "c", "--range", "-w", "json")
		s.wantCtl(`{"header":`+jsonHeader("11")+`,"deleted":1,"prev_kvs":[{"key":"Yw==","create_revision":6,"mod_revision":6,"version":1,"value":"di1j"}]}`+"\n",
			"del", "", "--from-key", "--prev-kv", "-w", "json")
		s.wantCtl(`{"header":`+jsonHeader("11")+"}\n", "del", "", "--from-key", "-w", "json")
		s.wantCtl("", "get", "", "--from-key")
	})
}
