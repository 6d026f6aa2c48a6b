//go:build unix

package clientgolease_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
)

// kubernetes stands in for the API of a Kubernetes cluster. It has the Lease objects of one namespace. An update must have
// the resource version that the object has, as in Kubernetes.
type kubernetes struct {
	mu      sync.Mutex
	objects map[string]*coordination.Lease
	version int // of the last change
}

// leasesPath is the path of the Lease objects.
const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// startKubernetes starts a cluster's API, and returns the path of a kubeconfig file for it.
func startKubernetes(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(&kubernetes{objects: make(map[string]*coordination.Lease)})
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServeHTTP implements [http.Handler].
func (k *kubernetes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, err := k.handle(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := err.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status) // its error is that the client has gone
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// handle gets, creates or updates an object. The caller holds mu.
func (k *kubernetes) handle(r *http.Request) (*coordination.Lease, *apierrors.StatusError) {
	kind := coordination.Resource("leases")
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leasesPath), "/")
	object := new(coordination.Lease)
	if r.Method != http.MethodGet {
		text, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(text, nil, object) // JSON or protobuf
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		name = object.Name
	}
	old := k.objects[name]
	switch {
	case !strings.HasPrefix(r.URL.Path, leasesPath):
		return nil, apierrors.NewBadRequest("there is no " + r.URL.Path)
	case r.Method == http.MethodPost && old != nil:
		return nil, apierrors.NewAlreadyExists(kind, name)
	case r.Method != http.MethodPost && old == nil:
		return nil, apierrors.NewNotFound(kind, name)
	case r.Method == http.MethodGet:
		return old, nil
	case r.Method == http.MethodPut && object.ResourceVersion != old.ResourceVersion:
		return nil, apierrors.NewConflict(kind, name, fmt.Errorf("the object has changed since version %s", object.ResourceVersion))
	}
	k.version++
	object.Kind, object.APIVersion, object.ResourceVersion = "Lease", "coordination.k8s.io/v1", strconv.Itoa(k.version)
	k.objects[name] = object
	return object, nil
}
