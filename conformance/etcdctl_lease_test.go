package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

var grantedLine = regexp.MustCompile(`^lease ([0-9a-f]{16}) granted with TTL\((\d+)s\)\n$`)

// ctlGrant grants a lease with etcdctl and returns its id as etcdctl writes it,
// and the granted TTL.
func (s *server) ctlGrant(ttl string) (id string, granted int64) {
	s.t.Helper()
	out := s.mustCtl("lease", "grant", "--", ttl)
	m := grantedLine.FindStringSubmatch(out)
	if m == nil {
		s.t.Fatalf("lease grant printed %q", out)
	}
	granted, _ = strconv.ParseInt(m[2], 10, 64)
	return m[1], granted
}

func decimal(t *testing.T, hex string) string {
	t.Helper()
	id, err := strconv.ParseInt(hex, 16, 64)
	wantOK(t, "lease id", err)
	return strconv.FormatInt(id, 10)
}

func TestEtcdctlLeaseGrant(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		_, granted := s.ctlGrant("60")
		wantEqual(t, "granted", granted, 60)
		for _, small := range []string{"0", "-5", "1"} {
			if _, granted := s.ctlGrant(small); granted < 1 || granted > 5 {
				t.Errorf("granted %d s for %s", granted, small)
			}
		}
		s.wantCtlError(1, "failed to grant lease (etcdserver: too large lease TTL)", "lease", "grant", "9000000001")
		var answer struct {
			ID, TTL  int64
			Error    string
			Revision int64
		}
		out := s.mustCtl("lease", "grant", "60", "-w", "json")
		wantOK(t, "decoding", json.Unmarshal([]byte(out), &answer))
		wantEqual(t, "json", plain(out), fmt.Sprintf(
			`{"cluster_id":C,"member_id":M,"revision":1,"raft_term":T,"ID":%d,"TTL":60,"Error":""}`+"\n", answer.ID))
	})
}

func TestEtcdctlLeaseList(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.wantCtl("found 0 leases\n", "lease", "list")
		s.wantCtl(`{"cluster_id":C,"member_id":M,"revision":1,"raft_term":T,"leases":[]}`+"\n", "lease", "list", "-w", "json")
		a, _ := s.ctlGrant("600")
		b, _ := s.ctlGrant("600")
		c, _ := s.ctlGrant("600")
		s.wantCtl(lines("found 3 leases", a, b, c, ""), "lease", "list")
		s.wantCtl(fmt.Sprintf(`{"cluster_id":C,"member_id":M,"revision":1,"raft_term":T,"leases":[{"id":%s},{"id":%s},{"id":%s}]}`+"\n",
			decimal(t, a), decimal(t, b), decimal(t, c)), "lease", "list", "-w", "json")
		s.wantCtl("lease "+b+" revoked\n", "lease", "revoke", b)
		s.wantCtl(lines("found 2 leases", a, c, ""), "lease", "list")
	})
}

func TestEtcdctlLeaseTimeToLive(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		id, _ := s.ctlGrant("600")
		s.wantCtl("OK\n", "put", "b", "1", "--lease="+id)
		remaining := regexp.MustCompile(`remaining\((?:59\d|5[6-8]\d|600)s\)`)
		check := func(want string, args ...string) {
			t.Helper()
			out := s.mustCtl(append([]string{"lease", "timetolive", id}, args...)...)
			wantEqual(t, "timetolive", remaining.ReplaceAllString(out, "remaining(R)"), want)
		}
		check("lease " + id + " granted with TTL(600s), remaining(R)\n")
		check("lease "+id+" granted with TTL(600s), remaining(R), attached keys([b])\n", "--keys")
		out := plain(s.mustCtl("lease", "timetolive", id, "--keys", "-w", "json"))
		wantEqual(t, "json", regexp.MustCompile(`"ttl":5\d\d,`).ReplaceAllString(out, `"ttl":R,`),
			`{"cluster_id":C,"member_id":M,"revision":2,"raft_term":T,"id":`+decimal(t, id)+`,"ttl":R,"granted-ttl":600,"keys":["Yg=="]}`+"\n")
		s.wantCtl("lease 0000000000001234 already expired\n", "lease", "timetolive", "1234")
		s.wantCtl("lease 0000000000001234 already expired\n", "lease", "timetolive", "1234", "--keys")
		s.wantCtl(`{"cluster_id":C,"member_id":M,"revision":2,"raft_term":T,"id":4660,"ttl":-1,"granted-ttl":0,"keys":null}`+"\n",
			"lease", "timetolive", "1234", "-w", "json")
	})
}

func TestEtcdctlLeaseRevoke(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		id, _ := s.ctlGrant("600")
		for _, k := range []string{"b", "a"} {
			s.mustCtl("put", k, "1", "--lease="+id) // 2, 3
		}
		w := s.startCtl("watch", "", "--prefix", "--rev", "4")
		s.wantCtl("lease "+id+" revoked\n", "lease", "revoke", id)
		w.want("end of the keys", "DELETE", "a", "", "DELETE", "b", "")
		s.wantCtl("", "get", "", "--from-key")
		s.wantCtlError(1, "failed to revoke lease (etcdserver: requested lease not found)", "lease", "revoke", id)
		id, _ = s.ctlGrant("600")
		s.wantCtl(`{"header":`+jsonHeader("4")+"}\n", "lease", "revoke", id, "-w", "json")
	})
}

func TestEtcdctlLeaseKeepAlive(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		id, granted := s.ctlGrant("3")
		line := fmt.Sprintf("lease %s keepalived with TTL(%d)", id, granted)
		s.wantCtl(line+"\n", "lease", "keep-alive", "--once", id)
		s.wantCtl(`{"cluster_id":C,"member_id":M,"revision":1,"raft_term":T,"ID":`+decimal(t, id)+fmt.Sprintf(`,"TTL":%d}`, granted)+"\n",
			"lease", "keep-alive", "--once", id, "-w", "json")
		s.mustCtl("put", "a", "1", "--lease="+id)
		k := s.startCtl("lease", "keep-alive", id)
		k.want("first", line)
		// Past the end of an unrenewed lease, by which time etcdctl has renewed more than once.
		start := time.Now()
		for time.Since(start) < time.Duration(granted)*time.Second+2*time.Second {
			k.want("next", line)
		}
		s.wantCtl("a\n1\n", "get", "a")
		s.mustCtl("lease", "revoke", id)
		// One more renewal may have been on its way.
		last := k.line()
		for last == line {
			last = k.line()
		}
		wantEqual(t, "last line", last, "lease "+id+" expired or revoked.")
		k.wantEnd(0)

		s.wantCtlError(2, "etcdserver: requested lease not found", "lease", "keep-alive", "--once", "1234")
		s.wantCtl("lease 0000000000001234 expired or revoked.\n", "lease", "keep-alive", "1234")
	})
}

func TestEtcdctlLeaseExpiry(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		w := s.startCtl("watch", "", "--prefix", "--rev", "2")
		sent := time.Now()
		id, granted := s.ctlGrant("2")
		var l life
		l.renewed(sent, granted)
		s.mustCtl("put", "b", "2", "--lease="+id)
		s.mustCtl("put", "a", "1", "--lease="+id)
		w.want("puts", "PUT", "b", "2", "PUT", "a", "1")
		w.want("end", "DELETE", "a", "")
		l.checkEnd(t)
		w.want("end", "DELETE", "b", "")
		s.wantCtl("", "get", "", "--from-key")
		s.wantCtl("found 0 leases\n", "lease", "list")
		s.wantCtl("lease "+id+" already expired\n", "lease", "timetolive", id)
	})
}
