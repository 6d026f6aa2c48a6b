//go:build unix

package clientgolease_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/client-go/tools/clientcmd" // the page's programs use it

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

// leaseServer is the part of the Kubernetes API that electors use: one Lease object, in JSON, with conditional updates.
type leaseServer struct {
	mu      sync.Mutex
	one     *coordinationv1.Lease // nil until an elector has made it
	version int
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent coordinationv1.Lease
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
	}
	switch {
	case r.Method == http.MethodPost && s.one != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	case r.Method != http.MethodPost && s.one == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	case r.Method == http.MethodPut && sent.ResourceVersion != s.one.ResourceVersion:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		s.version++
		sent.ResourceVersion = strconv.Itoa(s.version)
		s.one = &sent
	}
	answer(w, http.StatusOK, s.one)
}

// refuse answers as the Kubernetes API does.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	answer(w, int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason})
}

func answer(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) // the client has gone
}

// configFor writes a kubeconfig for a server, and returns its path.
func configFor(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: one, cluster: {server: %q}}]
contexts: [{name: one, context: {cluster: one}}]
current-context: one
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each two programs of docs/compare/client-go.md that run at the same time during the change exclude each other. The second
// one has seen the leader, or leads in Kubernetes, before the first one's job ends.
func TestProgramsOfTheChangeFromLeaseObjectsNeverMeet(t *testing.T) {
	built := pageprogram.Build(t, "../../docs/compare/client-go.md", 3, t.TempDir())
	database := databases.PostgreSQL(t)
	kinds := []string{"old", "both", "new"}
	for i, first := range kinds {
		for j, second := range kinds {
			t.Run(first+" works, "+second+" tries", func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(new(leaseServer))
				t.Cleanup(server.Close)
				env := []string{"KUBECONFIG=" + configFor(t, server.URL), "LEASEKEEPER_STORE=" + database.Database(t)}
				fleet := pageprogram.NewFleet(t)
				one := fleet.Start("the first", built[i], env...)
				one.Works()
				two := fleet.Start("the second", built[j], env...)
				if i-j > 1 || j-i > 1 {
					two.Overlaps() // so the program in between is needed
					one.Finish()
					return
				}
				two.Await("the leader is ")
				one.Finish()
				two.Works()
				two.Finish()
			})
		}
	}
}
