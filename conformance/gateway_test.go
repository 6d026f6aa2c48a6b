package conformance

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// postJSON sends what curl -d sends. The answer is normalized: identities of members and terms are removed.
func (s *server) postJSON(path, body string) (code int, answer string) {
	s.t.Helper()
	resp := s.openJSON(path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	wantOK(s.t, path, err)
	return resp.StatusCode, normalJSON(string(text))
}

func (s *server) openJSON(path, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.context(), http.MethodPost, "http://"+s.grpcAddr+path, strings.NewReader(body))
	wantOK(s.t, path, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	wantOK(s.t, path, err)
	return resp
}

// normalJSON removes what differs between servers and runs, and sorts the fields.
func normalJSON(text string) string {
	var all []string
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var value any
		if err := decoder.Decode(&value); err == io.EOF {
			return strings.Join(all, "\n")
		} else if err != nil {
			return text
		}
		anonymize(value)
		line, _ := json.Marshal(value)
		all = append(all, string(line))
	}
}

func anonymize(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if slices.Contains([]string{"cluster_id", "member_id", "raft_term", "details"}, name) {
				delete(value, name)
			}
			anonymize(field)
		}
	case []any:
		for _, element := range value {
			anonymize(element)
		}
	}
}

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestGatewayAnswersAsEtcd(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		a, b := base64Of("a"), base64Of("b")
		for _, c := range []struct{ path, body, want string }{
			{"/v3/kv/put", `{"key":"` + a + `","value":"` + b + `"}`, `200 {"header":{"revision":"2"}}`},
			{"/v3/kv/put", `{"key":"` + a + `","prev_kv":true}`,
				`200 {"header":{"revision":"3"},"prev_kv":{"create_revision":"2","key":"` + a + `","mod_revision":"2","value":"` + b + `","version":"1"}}`},
			{"/v3/kv/range", `{"key":"` + a + `","revision":2}`,
				`200 {"count":"1","header":{"revision":"3"},"kvs":[{"create_revision":"2","key":"` + a + `","mod_revision":"2","value":"` + b + `","version":"1"}]}`},
			{"/v3/kv/range", `{"key":"` + b + `"}`, `200 {"header":{"revision":"3"}}`},
			{"/v3/kv/range", `{"key":"` + a + `","rangeEnd":"` + b + `","countOnly":true,"unknown":[1]}`, `200 {"count":"1","header":{"revision":"3"}}`},
			{"/v3/kv/txn", `{"compare":[{"key":"` + a + `","target":"VERSION","version":"2"}],"success":[{"request_put":{"key":"` + b + `"}},{"requestRange":{"key":"` + b + `"}}]}`,
				`200 {"header":{"revision":"4"},"responses":[{"response_put":{"header":{"revision":"4"}}},{"response_range":{"count":"1","header":{"revision":"4"},"kvs":[{"create_revision":"4","key":"` + b + `","mod_revision":"4","version":"1"}]}}],"succeeded":true}`},
			{"/v3/kv/deleterange", `{"key":"` + b + `"}`, `200 {"deleted":"1","header":{"revision":"5"}}`},
			{"/v3/kv/compaction", `{"revision":4}`, `200 {"header":{"revision":"5"}}`},
			{"/v3/kv/range", `{"key":"` + a + `","revision":2}`,
				`400 {"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}`},
			{"/v3/lease/grant", `{"ID":7,"TTL":60}`, `200 {"ID":"7","TTL":"60","header":{"revision":"5"}}`},
			{"/v3/lease/grant", `{"ID":"7","TTL":"60"}`, `400 {"code":9,"message":"etcdserver: lease already exists"}`},
			{"/v3/lease/keepalive", `{"ID":7}`, `200 {"result":{"ID":"7","TTL":"60","header":{"revision":"5"}}}`},
			{"/v3/lease/keepalive", `{"ID":8}`, `200 {"result":{"ID":"8","header":{"revision":"5"}}}`},
			{"/v3/lease/leases", `{}`, `200 {"header":{"revision":"5"},"leases":[{"ID":"7"}]}`},
			{"/v3/kv/lease/leases", `{}`, `200 {"header":{"revision":"5"},"leases":[{"ID":"7"}]}`},
			{"/v3/lock/lock", `{"name":"` + a + `","lease":7}`, `200 {"header":{"revision":"6"},"key":"` + base64Of("a/7") + `"}`},
			{"/v3/lock/unlock", `{"key":"` + base64Of("a/7") + `"}`, `200 {"header":{"revision":"7"}}`},
			{"/v3/election/leader", `{"name":"` + b + `"}`, `500 {"code":2,"message":"election: no leader"}`},
			{"/v3/election/campaign", `{"name":"` + b + `","lease":7,"value":"` + a + `"}`,
				`200 {"header":{"revision":"8"},"leader":{"key":"` + base64Of("b/7") + `","lease":"7","name":"` + b + `","rev":"8"}}`},
			{"/v3/election/proclaim", `{"leader":{"key":"` + base64Of("b/7") + `","lease":"7","name":"` + b + `","rev":"8"},"value":"` + b + `"}`, `200 {"header":{"revision":"9"}}`},
			{"/v3/election/leader", `{"name":"` + b + `"}`,
				`200 {"header":{"revision":"9"},"kv":{"create_revision":"8","key":"` + base64Of("b/7") + `","lease":"7","mod_revision":"9","value":"` + b + `","version":"2"}}`},
			{"/v3/election/resign", `{"leader":{"key":"` + base64Of("b/7") + `","lease":"7","name":"` + b + `","rev":"8"}}`, `200 {"header":{"revision":"10"}}`},
			{"/v3/lease/revoke", `{"ID":7}`, `200 {"header":{"revision":"10"}}`},
			{"/v3/kv/lease/revoke", `{"ID":7}`, `404 {"code":5,"message":"etcdserver: requested lease not found"}`},
			{"/v3/lease/timetolive", `{"ID":7}`, `200 {"ID":"7","TTL":"-1","header":{"revision":"10"}}`},
			{"/v3/kv/put", `{}`, `400 {"code":3,"message":"etcdserver: key is not provided"}`},
			{"/v3/auth/authenticate", `{"name":"a","password":"b"}`, `400 {"code":9,"message":"etcdserver: authentication is not enabled"}`},
			{"/v3/kv/nothing", `{}`, `404 {"code":5,"message":"Not Found"}`},
			{"/v3beta/kv/range", `{"key":"` + b + `"}`, `200 {"header":{"revision":"10"}}`},
		} {
			s.settle()
			code, answer := s.postJSON(c.path, c.body)
			wantEqual(t, c.path+" "+c.body, fmt.Sprint(code, " ", answer), c.want)
		}
		for _, body := range []string{`{`, `{"key":1}`, `{"key":"?"}`, `[]`} {
			code, _ := s.postJSON("/v3/kv/range", body)
			wantEqual(t, "code of "+body, code, http.StatusBadRequest)
		}
		resp, err := http.Get("http://" + s.grpcAddr + "/v3/kv/range")
		wantOK(t, "GET", err)
		resp.Body.Close()
		wantEqual(t, "GET", resp.StatusCode, http.StatusNotImplemented)
	})
}

// jsonLines are the lines of a stream.
type jsonLines struct {
	t *testing.T
	*bufio.Reader
}

func (s *server) streamJSON(path, body string) jsonLines {
	s.t.Helper()
	resp := s.openJSON(path, body)
	s.t.Cleanup(func() { resp.Body.Close() })
	wantEqual(s.t, path, resp.StatusCode, http.StatusOK)
	return jsonLines{s.t, bufio.NewReader(resp.Body)}
}

func (l jsonLines) next() string {
	l.t.Helper()
	line, err := l.ReadString('\n')
	wantOK(l.t, "reading a line", err)
	return normalJSON(line)
}

func TestGatewayStreamsAsEtcd(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, a := s.store(), base64Of("a")
		watch := s.streamJSON("/v3/watch", `{"create_request":{"key":"`+a+`","watch_id":5}}`)
		wantEqual(t, "created", watch.next(), `{"result":{"created":true,"header":{"revision":"1"},"watch_id":"5"}}`)
		st.put("a", "") // 2
		wantEqual(t, "event", watch.next(),
			`{"result":{"events":[{"kv":{"create_revision":"2","key":"`+a+`","mod_revision":"2","version":"1"}}],"header":{"revision":"2"},"watch_id":"5"}}`)
		st.delete("a") // 3
		wantEqual(t, "event", watch.next(),
			`{"result":{"events":[{"kv":{"key":"`+a+`","mod_revision":"3"},"type":"DELETE"}],"header":{"revision":"3"},"watch_id":"5"}}`)
		st.put("e/1", "me") // 4
		s.settle()
		observe := s.streamJSON("/v3/election/observe", `{"name":"`+base64Of("e")+`"}`)
		wantEqual(t, "leader", observe.next(),
			`{"result":{"header":{"revision":"4"},"kv":{"create_revision":"4","key":"`+base64Of("e/1")+`","mod_revision":"4","value":"`+base64Of("me")+`","version":"1"}}}`)
	})
}

func TestGatewayByCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("this test needs curl: install it (%v)", err)
	}
	eachTarget(t, func(t *testing.T, s *server) {
		out, err := exec.CommandContext(s.context(), curl, "-sS", "-L", "http://"+s.grpcAddr+"/v3/kv/put", "-X", "POST",
			"-d", `{"key": "Zm9v", "value": "YmFy"}`).CombinedOutput()
		wantOK(t, "curl: "+string(out), err)
		wantEqual(t, "answer", normalJSON(string(out)), `{"header":{"revision":"2"}}`)
		wantEqual(t, "value", string(s.store().get("foo").Kvs[0].Value), "bar")
	})
}
