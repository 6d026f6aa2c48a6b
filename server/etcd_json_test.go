package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
	"github.com/leasekeeper/leasekeeper/server/internal/paced"
)

// jsonClient is an HTTP client of the client port, of one protocol.
type jsonClient struct {
	f    *front
	base string
	http *http.Client
}

// overHTTP returns a client. config is nil without TLS.
func (f *front) overHTTP(version2 bool, config *tls.Config) *jsonClient {
	f.t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: config.Clone()}
	base := "http://"
	switch {
	case config != nil && version2:
		transport.Protocols.SetHTTP2(true)
	case version2:
		transport.Protocols.SetUnencryptedHTTP2(true)
	default:
		transport.Protocols.SetHTTP1(true)
	}
	if config != nil {
		base = "https://"
	}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &jsonClient{f, base + f.server.Addr(), &http.Client{Transport: transport}}
}

// do sends a request as curl -d does, whose content type is that of a form. Header lines replace that.
func (c *jsonClient) do(method, path, body string, headers ...string) *http.Response {
	c.f.t.Helper()
	r, err := http.NewRequestWithContext(c.f.ctx(), method, c.base+path, strings.NewReader(body))
	wantOK(c.f.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := c.http.Do(r)
	wantOK(c.f.t, err)
	c.f.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post sends JSON, and returns the answer to it.
func (c *jsonClient) post(path, body string, headers ...string) map[string]any {
	c.f.t.Helper()
	resp := c.do(http.MethodPost, path, body, headers...)
	text, err := io.ReadAll(resp.Body)
	wantOK(c.f.t, err)
	if resp.StatusCode != http.StatusOK {
		c.f.t.Errorf("%s %s: %s: %s", path, body, resp.Status, text)
	}
	return object(c.f.t.(*testing.T), bytes.TrimSpace(text))
}

// fails sends JSON, and returns the message of the error.
func (c *jsonClient) fails(code int, path, body string, headers ...string) string {
	c.f.t.Helper()
	resp := c.do(http.MethodPost, path, body, headers...)
	text, err := io.ReadAll(resp.Body)
	wantOK(c.f.t, err)
	wantEqual(c.f.t, path+" "+body+": code, with the answer "+string(text), resp.StatusCode, code)
	var answer struct{ Message string }
	if json.Unmarshal(text, &answer) != nil {
		return strings.TrimSpace(string(text))
	}
	return answer.Message
}

// in64 returns text in base64, as JSON has it.
func in64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// onEachProtocol runs a test over HTTP/1.1 and HTTP/2, plain and with TLS.
func onEachProtocol(t *testing.T, test func(t *testing.T, c *jsonClient)) {
	for _, secure := range []bool{false, true} {
		cfg, config := anyPort(), (*tls.Config)(nil)
		if secure {
			ca := authority.New(t, "ca")
			cfg, config = secured(t, ca, ca), ca.Trust(ca.Pair("client"))
		}
		for _, version2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, HTTP/2 %v", secure, version2), func(t *testing.T) {
				c := startWith(t, cfg, nil).overHTTP(version2, config)
				test(t, c)
				resp := c.do(http.MethodGet, "/version", "")
				wantEqual(t, "HTTP/2", resp.ProtoMajor == 2, version2)
			})
		}
	}
}

func TestEtcdAPIIsServedAsJSON(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, c *jsonClient) {
		own := c.f.node.Header()
		put := c.post("/v3/kv/put", `{"key":"`+in64("a")+`","value":"`+in64("1")+`"}`)
		wantEqual(t, "header", fmt.Sprint(put["header"]), fmt.Sprintf("map[cluster_id:%d member_id:%d raft_term:%d revision:2]", own.ClusterID, own.MemberID, own.Term))
		got := c.post("/v3/kv/range", `{"key":"`+in64("a")+`"}`)
		wantEqual(t, "range", fmt.Sprintf("%v %v", got["kvs"], got["count"]),
			fmt.Sprintf("[map[create_revision:2 key:%s mod_revision:2 value:%s version:1]] 1", in64("a"), in64("1")))
		txn := c.post("/v3/kv/txn", `{"compare":[{"key":"`+in64("a")+`","target":"VALUE","value":"`+in64("1")+`"}],
			"success":[{"requestPut":{"key":"`+in64("b")+`"}}],"unknown":1}`)
		wantEqual(t, "txn", txn["succeeded"], any(true))
		lease := c.post("/v3/lease/grant", `{"TTL":60,"ID":7}`)
		wantEqual(t, "lease", fmt.Sprintf("%v %v", lease["ID"], lease["TTL"]), "7 60")
		wantEqual(t, "renewed", fmt.Sprint(c.post("/v3/lease/keepalive", `{"ID":7}`)["TTL"]), "60")
		lock := c.post("/v3/lock/lock", `{"name":"`+in64("l")+`","lease":7}`)
		wantEqual(t, "lock", lock["key"], any(in64("l/7")))
		c.post("/v3/lock/unlock", `{"key":"`+in64("l/7")+`"}`)
		led := c.post("/v3/election/campaign", `{"name":"`+in64("e")+`","lease":7,"value":"`+in64("me")+`"}`)
		leader, err := json.Marshal(led["leader"])
		wantOK(t, err)
		wantEqual(t, "leader", fmt.Sprint(c.post("/v3/election/leader", `{"name":"`+in64("e")+`"}`)["kv"].(map[string]any)["value"]), in64("me"))
		c.post("/v3/election/resign", `{"leader":`+string(leader)+`}`)
		c.post("/v3/kv/lease/revoke", `{"ID":7}`)
		wantEqual(t, "deleted", fmt.Sprint(c.post("/v3/kv/deleterange", `{"key":"`+in64("a")+`","range_end":"AA=="}`)["deleted"]), "2")
		wantEqual(t, "status", c.post("/v3/maintenance/status", `{}`)["version"], any(EtcdVersion))
		members := c.post("/v3/cluster/member/list", `{}`)["members"].([]any)
		wantEqual(t, "members", len(members), 1)
		for path, what := range map[string]string{"/version": "etcdserver", "/health": `"health":"true"`, "/metrics": "leasekeeper_", "/readyz": "ok"} {
			resp := c.do(http.MethodGet, path, "")
			text, err := io.ReadAll(resp.Body)
			wantOK(t, err)
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), what) {
				t.Errorf("%s: %s: %.200s", path, resp.Status, text)
			}
		}
	})
}

func TestEtcdJSONReportsErrorsAsEtcd(t *testing.T) {
	c := startFront(t).overHTTP(false, nil)
	for _, e := range []struct {
		code             int
		path, body, want string
	}{
		{400, "/v3/kv/put", `{}`, "etcdserver: key is not provided"},
		{404, "/v3/lease/revoke", `{"ID":9}`, "etcdserver: requested lease not found"},
		{400, "/v3/cluster/member/add", `{}`, "etcdserver: given member URLs are invalid"},
		{400, "/v3/auth/user/add", `{}`, "etcdserver: user name is empty"},
		{404, "/v3/no/such/path", `{}`, "Not Found"},
	} {
		wantEqual(t, e.path, c.fails(e.code, e.path, e.body), e.want)
	}
	c.fails(400, "/v3/kv/put", `{"key":1}`)
	c.fails(400, "/v3/kv/put", `{`)
}

// stream opens a stream of answers to one request.
func (c *jsonClient) stream(path, body string) *bufio.Reader {
	c.f.t.Helper()
	resp := c.do(http.MethodPost, path, body)
	wantEqual(c.f.t, path, resp.StatusCode, http.StatusOK)
	return bufio.NewReader(resp.Body)
}

func TestEtcdJSONStreams(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, c *jsonClient) {
		watch := c.stream("/v3/watch", `{"create_request":{"key":"`+in64("k")+`","range_end":"AA=="}}`)
		wantEqual(t, "created", jsonLine(t, watch)["created"], any(true))
		c.post("/v3/kv/put", `{"key":"`+in64("k")+`"}`)
		event := jsonLine(t, watch)["events"].([]any)[0].(map[string]any)["kv"].(map[string]any)
		wantEqual(t, "event", fmt.Sprintf("%v %v", event["key"], event["mod_revision"]), in64("k")+" 2")
		// A client may send further requests on the stream.
		in, answers := c.talk("/v3/watch", `{"create_request":{"key":"`+in64("a")+`","watch_id":"4"}}`)
		wantEqual(t, "created", fmt.Sprint(jsonLine(t, answers)["watch_id"]), "4")
		fmt.Fprint(in, `{"cancel_request":{"watch_id":4}}`)
		wantEqual(t, "canceled", jsonLine(t, answers)["canceled"], any(true))
		c.post("/v3/lease/grant", `{"TTL":60,"ID":7}`)
		in, answers = c.talk("/v3/lease/keepalive", `{"ID":7}`)
		for range 2 {
			renewed := jsonLine(t, answers)
			wantEqual(t, "renewed", fmt.Sprintf("%v %v", renewed["ID"], renewed["TTL"]), "7 60")
			fmt.Fprint(in, `{"ID":7}`)
		}
	})
}

// talk opens a stream with a first request, and returns where further requests go and where the answers come from. The stream ends
// with the test.
func (c *jsonClient) talk(path, first string) (in io.Writer, answers *bufio.Reader) {
	t := c.f.t
	t.Helper()
	out, pipe := io.Pipe()
	t.Cleanup(func() { pipe.Close() })
	go func() { fmt.Fprint(pipe, first) }()
	r, err := http.NewRequestWithContext(c.f.ctx(), http.MethodPost, c.base+path, out)
	wantOK(t, err)
	resp, err := c.http.Do(r)
	wantOK(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return pipe, bufio.NewReader(resp.Body)
}

// Browsers let the page of any site send such requests, and say where the page came from.
func TestClientPortRefusesForeignPagesAndHosts(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, c *jsonClient) {
		put := `{"key":"` + in64("a") + `"}`
		c.fails(http.StatusForbidden, "/v3/kv/put", put, "Origin: http://evil.example")
		c.fails(http.StatusForbidden, "/v3/kv/put", put, "Origin: null")
		c.fails(http.StatusForbidden, "/v3/kv/put", put, "Sec-Fetch-Site: cross-site")
		c.fails(http.StatusForbidden, "/v3/kv/put", put, "Sec-Fetch-Site: same-site")
		c.fails(http.StatusMisdirectedRequest, "/v3/kv/put", put, "Host: rebound.example.com")
		wantEqual(t, "keys", c.post("/v3/kv/range", `{"key":"AA==","range_end":"AA=="}`)["count"], nil)
		c.post("/v3/kv/put", put, "Origin: "+c.base)
		c.post("/v3/kv/put", put, "Sec-Fetch-Site: none")
		wantEqual(t, "gRPC", c.fails(http.StatusUnsupportedMediaType, "/v3/kv/put", put, "Content-Type: application/grpc+x"),
			"this connection began with a request that is not gRPC: open another one for gRPC")
	})
}

// Headers of a client name neither a member nor another client, and they do not reach the services. Only etcd's wish for a
// leader does.
func TestHeadersOfJSONRequestsNameNobody(t *testing.T) {
	for _, header := range []string{
		"Leasekeeper-Identity-Bin", "Leasekeeper-Caller-Bin", "Leasekeeper-Common-Name-Bin", "Leasekeeper-Origin-Bin", "Leasekeeper-Json-Request-Bin", "Hasleader",
	} {
		for _, prefix := range []string{"", "Grpc-Metadata-"} {
			passes := prefix != "" && header == "Hasleader"
			name, ok := passesHeader(prefix + header)
			if ok != passes || ok && name != rpctypes.MetadataRequireLeaderKey {
				t.Errorf("%s%s becomes the metadata %q (%v)", prefix, header, name, ok)
			}
		}
	}
}

func TestLargeJSONRequestsAreRefused(t *testing.T) {
	cfg := anyPort()
	cfg.MaxRequestBytes = 64 << 10
	c := startWith(t, cfg, nil).overHTTP(false, nil)
	put := func(n int) string { return `{"key":"YQ==","value":"` + in64(strings.Repeat("x", n)) + `"}` }
	c.post("/v3/kv/put", put(60<<10))
	wantEqual(t, "a large write", c.fails(400, "/v3/kv/put", put(70<<10)), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge))
	wantEqual(t, "a huge write", c.fails(400, "/v3/kv/put", put(1<<20)), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge))
	resp := c.do(http.MethodPost, "/v3/watch", `{"create_request":{"key":"`+in64(strings.Repeat("x", 1<<20))+`"}}`)
	text, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(text), errHugeMessage.Error()) {
		t.Errorf("a huge request to watch: %s: %.300s", resp.Status, text)
	}
	eventually(t, "all is given back", func() bool {
		return c.f.used(requestBytes) == 0 && c.f.used(answerBytes) == 0 && c.f.used(longStreams) == 0 && c.f.server.budget.open.Load() == 0
	})
}

// The answer counts as memory of the client's connection until the client has it.
func TestJSONAnswersAreCounted(t *testing.T) {
	cfg := anyPort()
	cfg.MemoryLimit = 64 << 20 // so one connection may have 4 MiB of answers
	c := startWith(t, cfg, nil).overHTTP(false, nil)
	for i := range 8 {
		c.post("/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s"}`, in64(fmt.Sprint(i)), in64(strings.Repeat("x", 200<<10))))
	}
	message := c.fails(http.StatusTooManyRequests, "/v3/kv/range", `{"key":"AA==","range_end":"AA=="}`)
	if !strings.Contains(message, "memory") && !strings.Contains(message, "answers") {
		t.Error(message)
	}
	c.post("/v3/kv/range", `{"key":"AA==","range_end":"AA==","limit":2}`)
	// A response of a watcher is cut rather than refused.
	watch := c.stream("/v3/watch", `{"create_request":{"key":"AA==","range_end":"AA==","start_revision":2}}`)
	jsonLine(t, watch)
	for events := 0; events < 8; {
		events += len(jsonLine(t, watch)["events"].([]any))
	}
	c.http.CloseIdleConnections()
}

func TestStopEndsJSONStreams(t *testing.T) {
	node := startNode(t)
	s, err := newServer(anyPort(), node)
	wantOK(t, err)
	f := frontOf(t, s, node)
	c := f.overHTTP(false, nil)
	watch := c.stream("/v3/watch", `{"create_request":{"key":"AA=="}}`)
	jsonLine(t, watch)
	wantOK(t, s.Stop(limited(t, context.Background())))
	if _, err := io.ReadAll(watch); err != nil {
		t.Errorf("the stream did not end in order: %v", err)
	}
}

// A client that has sent more than its request, and goes away without a sign, leaves no watcher behind.
func TestJSONStreamEndsWithItsConnection(t *testing.T) {
	for name, more := range map[string]string{"nothing more": "", "a byte more": " ", "another request": "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			f := startFront(t)
			conn := f.watchRaw(more)
			eventually(t, "a watcher is there", func() bool { return f.server.metrics.watchers.Load() == 1 })
			wantOK(t, conn.Close())
			eventually(t, "the watcher is gone", func() bool { return f.server.metrics.watchers.Load() == 0 && f.used(longStreams) == 0 })
		})
	}
}

func TestStopEndsJSONStreamsOfClientsThatReadNothing(t *testing.T) {
	node := startNode(t)
	s, err := newServer(anyPort(), node)
	wantOK(t, err)
	f := frontOf(t, s, node)
	conn := f.watchRaw(" ")
	defer conn.Close()
	eventually(t, "a watcher is there", func() bool { return s.metrics.watchers.Load() == 1 })
	for i := range 16 {
		f.put(fmt.Sprint(i), strings.Repeat("x", 1<<20))
	}
	began := time.Now()
	wantOK(t, s.Stop(limited(t, context.Background())))
	if took := time.Since(began); took > paced.PieceLimit/2 {
		t.Errorf("it waited %v for the client, which has only %v", took, paced.StopLimit)
	}
}

// watchRaw opens a watch of everything on a connection of its own, which also carries more after the request.
func (f *front) watchRaw(more string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.server.Addr())
	wantOK(f.t, err)
	wantOK(f.t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	body := `{"create_request":{"key":"AA==","range_end":"AA=="}}`
	_, err = fmt.Fprintf(conn, "POST /v3/watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s%s", len(body), body, more)
	wantOK(f.t, err)
	return conn
}

// Python's own HTTP client is one of those for which etcd has this API.
func TestPythonUsesEtcdJSON(t *testing.T) {
	python := required.Program(t, "python3", "python3")
	f := startFront(t)
	out, err := exec.CommandContext(f.ctx(), python, "-c", `
import base64, json, sys, urllib.request
def call(path, body):
    return json.load(urllib.request.urlopen(sys.argv[1] + path, json.dumps(body).encode()))
key = base64.b64encode(b"k").decode()
lease = call("/v3/lease/grant", {"TTL": 30})
watch = urllib.request.urlopen(sys.argv[1] + "/v3/watch", json.dumps({"create_request": {"key": key}}).encode())
assert json.loads(watch.readline())["result"]["created"]
call("/v3/kv/put", {"key": key, "value": base64.b64encode(b"v").decode(), "lease": lease["ID"]})
print(json.loads(watch.readline())["result"]["events"][0]["kv"]["mod_revision"])
print(base64.b64decode(call("/v3/kv/range", {"key": key})["kvs"][0]["value"]).decode())
print(call("/v3/lease/keepalive", {"ID": lease["ID"]})["result"]["TTL"])
`, "http://"+f.server.Addr()).CombinedOutput()
	wantEqual(t, fmt.Sprint("output, with the error ", err), string(out), "2\nv\n30\n")
	_, err = f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("gRPC still works")})
	wantOK(t, err)
}
