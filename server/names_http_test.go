package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// post sends JSON to leasekeeper.v1.
func (f *front) post(path, body string) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "http://"+f.server.HTTPAddr()+path, strings.NewReader(body))
	wantOK(f.t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	wantOK(f.t, err)
	f.t.Cleanup(func() {
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return resp
}

// jsonLine reads the next line of a stream.
func jsonLine(t *testing.T, in *bufio.Reader) map[string]any {
	t.Helper()
	text, err := in.ReadBytes('\n')
	wantOK(t, err)
	return object(t, text)
}

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if result, ok := got["result"].(map[string]any); ok {
		return result
	}
	return got
}

func (f *front) postOnce(t *testing.T, path, body string, code int) map[string]any {
	t.Helper()
	resp := f.post(path, body)
	text, err := io.ReadAll(resp.Body)
	wantOK(t, err)
	if resp.StatusCode != code {
		t.Errorf("%s %s: %s: %s", path, body, resp.Status, text)
	}
	return object(t, bytes.TrimSpace(text))
}

func TestNamesAreServedOverHTTP(t *testing.T) {
	f := startFront(t)
	got := f.postOnce(t, "/v1/acquire", `{"name": "jobs/a", "lease": "42", "ttl_ms": 60000, "holder": {"id": "curl"}}`, 200)
	token, _ := got["token"].(string)
	if got["state"] != "HELD" || got["lease"] != "42" || got["ttlMs"] != "60000" || token == "" {
		t.Fatalf("acquired: %v", got)
	}
	info, _ := f.postOnce(t, "/v1/get", `{"name": "jobs/a"}`, 200)["info"].(map[string]any)
	if info["held"] != true || info["token"] != token {
		t.Errorf("get: %v", info)
	}

	// A waiting claim is a stream: first its place, and later its turn.
	waiting := bufio.NewReader(f.post("/v1/acquire", `{"name": "jobs/a", "ttlMs": "60000", "wait": true}`).Body)
	place := jsonLine(t, waiting)
	if place["state"] != "WAITING" || place["place"] != 1.0 {
		t.Errorf("a waiting claim: %v", place)
	}
	watch := bufio.NewReader(f.post("/v1/watch", `{}`).Body)
	if first := jsonLine(t, watch); first["begin"] != true {
		t.Errorf("watch: %v", first)
	}
	jsonLine(t, watch) // the state of the names
	if synced := jsonLine(t, watch); synced["synced"] != true {
		t.Errorf("watch: %v", synced)
	}
	if got := f.postOnce(t, "/v1/release", `{"name": "jobs/a", "lease": 42}`, 200); got["ended"] != true {
		t.Errorf("released: %v", got)
	}
	if yours := jsonLine(t, waiting); yours["state"] != "HELD" || yours["token"] != place["token"] {
		t.Errorf("its turn: %v", yours)
	}
	if text := fmt.Sprint(jsonLine(t, watch)); !strings.Contains(text, "ACQUIRED") || !strings.Contains(text, "RELEASED") {
		t.Errorf("watch: %v", text)
	}
	lease := place["lease"]
	for _, call := range [][2]string{
		{"/v1/list", `{}`}, {"/v1/history", `{"name": "jobs/a"}`}, {"/v1/pin", `{"name": "jobs/a", "reason": "r"}`},
		{"/v1/unpin", `{"name": "jobs/a"}`}, {"/v1/announce", fmt.Sprintf(`{"name": "jobs/a", "lease": %q, "text": "t"}`, lease)},
	} {
		f.postOnce(t, call[0], call[1], 200)
	}
	got = f.postOnce(t, "/v1/transfer", fmt.Sprintf(`{"name": "jobs/a", "lease": %q}`, lease), 400)
	if !strings.Contains(fmt.Sprint(got), "NO_WAITER") {
		t.Errorf("a refusal does not say why: %v", got)
	}
	f.postOnce(t, "/v1/revoke", `{"name": "jobs/a", "now": true}`, 200)
}

// Answers to renewals arrive while the client sends more.
func TestRenewOverHTTPAnswersWhileTheClientSends(t *testing.T) {
	f := startFront(t)
	f.hold("n", 1, 60_000)
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "http://"+f.server.HTTPAddr()+"/v1/renew", body)
	wantOK(t, err)
	r.Header.Set("Content-Type", "application/json")
	go io.WriteString(send, `{"number": 1, "leases": ["1", "2"]}`+"\n")
	resp, err := http.DefaultClient.Do(r)
	wantOK(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	if got := fmt.Sprint(jsonLine(t, answers)); !strings.Contains(got, "GONE") {
		t.Errorf("first: %v", got)
	}
	_, err = io.WriteString(send, `{"number": "2", "leases": ["1"]}`+"\n")
	wantOK(t, err)
	if got := jsonLine(t, answers); got["number"] != "2" || len(got["refused"].([]any)) != 0 {
		t.Errorf("second: %v", got)
	}
	wantOK(t, send.Close())
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

func TestHTTPRefusesForeignAndInvalidRequests(t *testing.T) {
	f := startFront(t)
	url := "http://" + f.server.HTTPAddr() + "/v1/get"
	try := func(header, value string, code int) {
		t.Helper()
		r, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, url, strings.NewReader(`{"name": "n"}`))
		wantOK(t, err)
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set(header, value)
		resp, err := http.DefaultClient.Do(r)
		wantOK(t, err)
		resp.Body.Close()
		wantEqual(t, header+" "+value, resp.StatusCode, code)
	}
	defer http.DefaultClient.CloseIdleConnections()
	try("Accept", "application/json", 200)
	try("Origin", "http://evil.example", 403)
	try("Content-Type", "text/plain", 415)
	try("Content-Type", "application/x-www-form-urlencoded", 415)
	f.postOnce(t, "/v1/get", `{"nmae": "n"}`, 400)
	f.postOnce(t, "/v1/get", `{"name": "a//b"}`, 400)
	f.postOnce(t, "/v1/nothing", `{}`, 404)
}

// A server that other machines reach over HTTP but not over gRPC refuses names from its first request on.
func TestNamesOverHTTPAreClosedWhereGRPCIs(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	wantOK(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	wantOK(t, err)
	free.Close()
	first := make(chan string, 1)
	var client sync.WaitGroup
	defer client.Wait()
	ctx, cancel := context.WithCancel(limited(t, context.Background()))
	defer cancel()
	client.Go(func() { first <- firstStatus(ctx, "127.0.0.1:"+port) })
	cfg := anyPort()
	cfg.ListenHTTP = "0.0.0.0:" + port
	startWith(t, cfg, nil)
	wantEqual(t, "first status", <-first, "HTTP/1.1 403 Forbidden")
}

// firstStatus asks for a name as soon as something listens at an address.
func firstStatus(ctx context.Context, addr string) string {
	var conn net.Conn
	for conn == nil {
		var err error
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); ctx.Err() != nil {
			return err.Error()
		}
	}
	defer conn.Close()
	body := `{"name": "n"}`
	fmt.Fprintf(conn, "POST /v1/get HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(status)
}

// If gRPC requires a client certificate, JSON requires it too.
func TestNamesOverHTTPNeedTheClientsCertificate(t *testing.T) {
	ca, clients := authority.New(t, "servers"), authority.New(t, "clients")
	f := startWith(t, secured(t, ca, clients), nil)
	post := func(config *tls.Config) (int, error) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Post("https://"+f.server.HTTPAddr()+"/v1/acquire", "application/json", strings.NewReader(`{"name": "n", "ttlMs": 1000}`))
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if code, err := post(ca.Trust(authority.New(t, "others").Pair("client"))); err == nil {
		t.Errorf("a client without our certificate was answered %d", code)
	}
	code, err := post(ca.Trust(clients.Pair("client")))
	wantOK(t, err)
	wantEqual(t, "status", code, 200)
}
