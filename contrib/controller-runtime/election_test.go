package controllerlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
	controllerlease "github.com/leasekeeper/leasekeeper/contrib/controller-runtime"
)

const name = "controllers/web"

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// apiServer stands for the API server as far as a manager with a cache of ConfigMaps needs it. There is one ConfigMap.
func apiServer(t *testing.T) *rest.Config {
	t.Helper()
	one := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one", UID: "1", ResourceVersion: "1"},
	}
	mark := corev1.ConfigMap{TypeMeta: one.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		send := json.NewEncoder(w)
		if r.URL.Query().Get("watch") == "" {
			_ = send.Encode(corev1.ConfigMapList{
				TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
				Items: []corev1.ConfigMap{one},
			})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			_ = send.Encode(map[string]any{"type": "ADDED", "object": one})
			_ = send.Encode(map[string]any{"type": "BOOKMARK", "object": mark})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// options are those of a manager that needs no discovery and listens nowhere.
func options() manager.Options {
	return manager.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Logger:     logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper(nil)
			m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return m, nil
		},
	}
}

// replica is one process with a manager and a controller of ConfigMaps.
type replica struct {
	client     *memory.Backend
	keeper     *leasekeeper.Keeper
	election   *controllerlease.Election
	manager    manager.Manager
	reconciled chan time.Time // the first reconciliation
	stop       context.CancelFunc
	over       chan error // what Start returned
}

func newReplica(t *testing.T, store *memory.Store, api *rest.Config, o manager.Options) *replica {
	t.Helper()
	r := &replica{client: store.Backend(), reconciled: make(chan time.Time, 1), over: make(chan error, 1)}
	var err error
	if r.keeper, err = leasekeeper.New(r.client); err != nil {
		t.Fatal(err)
	}
	if r.election, err = controllerlease.New(r.keeper, name, o); err != nil {
		t.Fatal(err)
	}
	if r.manager, err = ctrl.NewManager(api, r.election.Options()); err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(r.manager).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
			if err := r.manager.GetClient().Get(ctx, q.NamespacedName, &corev1.ConfigMap{}); err != nil {
				return reconcile.Result{}, err
			}
			if lease := r.election.Lease(); lease == nil || lease.Check() != nil {
				t.Errorf("it reconciles %v without a lease", q)
			}
			select {
			case r.reconciled <- time.Now():
			default:
			}
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) add(t *testing.T, run manager.RunnableFunc) {
	t.Helper()
	if err := r.manager.Add(run); err != nil {
		t.Fatal(err)
	}
}

func (r *replica) start(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	t.Cleanup(stop)
	go func() { r.over <- r.election.Start(ctx, r.manager) }()
}

// receive fails the test if nothing comes.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

// queued waits until a manager stands in the queue of the name.
func queued(t *testing.T, b *memory.Backend) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		i, err := b.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if i.Waiting == 1 {
			return
		}
		if time.Since(began) > patience {
			t.Fatal("no manager waits")
		}
	}
}

func TestNextManagerBeginsWhenTheFirstHasStopped(t *testing.T) {
	store, api := memory.New(), apiServer(t)
	a, b := newReplica(t, store, api, options()), newReplica(t, store, api, options())
	var stopped atomic.Pointer[time.Time]
	a.add(t, func(ctx context.Context) error {
		<-ctx.Done()
		now := time.Now()
		stopped.Store(&now)
		return nil
	})
	began := make(chan time.Time, 1)
	b.add(t, func(ctx context.Context) error {
		began <- time.Now()
		if stopped.Load() == nil {
			t.Error("both run")
		}
		<-ctx.Done()
		return nil
	})
	a.start(t)
	receive(t, "the first reconciliation of a", a.reconciled)
	b.start(t)
	queued(t, a.client)
	if b.election.Lease() != nil {
		t.Error("b has a lease")
	}
	token := a.election.Lease().Token()
	a.stop()
	first := receive(t, "the start of b's runnables", began)
	at := receive(t, "the first reconciliation of b", b.reconciled)
	if err := receive(t, "the end of a", a.over); err != nil {
		t.Error(err)
	}
	took := at.Sub(*stopped.Load())
	t.Logf("from the end of a's runnable to the start of b's: %v; to b's first reconciliation: %v", first.Sub(*stopped.Load()), took)
	if took > clientgolease.DefaultRetryPeriod { // a manager that polls takes from 2 to 4.4 s
		t.Errorf("the hand-over took %v", took)
	}
	if next := b.election.Lease().Token(); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	b.stop()
	if err := receive(t, "the end of b", b.over); err != nil {
		t.Error(err)
	}
	if i, err := b.client.Get(t.Context(), name); err != nil || i.Held {
		t.Errorf("held by %v, %v", i.Holder, err)
	}
}

func TestLostLeaseStopsTheManager(t *testing.T) {
	a := newReplica(t, memory.New(), apiServer(t), options())
	cause := make(chan error, 1)
	a.add(t, func(ctx context.Context) error {
		<-ctx.Done()
		cause <- a.election.Lease().Check()
		return nil
	})
	a.start(t)
	receive(t, "the first reconciliation", a.reconciled)
	if err := a.client.Revoke(t.Context(), name, a.election.Lease().Token(), "by hand", true); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the end of the runnable", cause); !errors.Is(err, leasekeeper.ErrLost) {
		t.Errorf("the runnable ended with %v", err)
	}
	if err := receive(t, "the end of the manager", a.over); !errors.Is(err, leasekeeper.ErrLost) {
		t.Error(err)
	}
}

func TestRunnableThatDoesNotEndKeepsTheName(t *testing.T) {
	o := options()
	o.GracefulShutdownTimeout = new(100 * time.Millisecond)
	a := newReplica(t, memory.New(), apiServer(t), o)
	end := make(chan struct{})
	defer close(end)
	a.add(t, func(context.Context) error { <-end; return nil })
	a.start(t)
	receive(t, "the first reconciliation", a.reconciled)
	a.stop()
	if err := receive(t, "the end of the manager", a.over); !errors.Is(err, clientgolease.ErrStillRunning) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.keeper.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if i, err := memoryInfo(t, a.client); err != nil || !i.Held {
		t.Errorf("the name was released, %v", err)
	}
}

// memoryInfo reads the name over a connection of its own.
func memoryInfo(t *testing.T, b *memory.Backend) (leasekeeper.Info, error) {
	return b.Store().Backend().Get(t.Context(), name)
}

func TestManagerThatFailsReleasesTheName(t *testing.T) {
	a := newReplica(t, memory.New(), apiServer(t), options())
	broken := fmt.Errorf("broken")
	a.add(t, func(context.Context) error { return broken })
	a.start(t)
	if err := receive(t, "the end of the manager", a.over); !errors.Is(err, broken) {
		t.Error(err)
	}
	if i, err := memoryInfo(t, a.client); err != nil || i.Held || i.Token == 0 {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestManagerWithoutTimeToStopIsRefused(t *testing.T) {
	k, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Shutdown(t.Context())
	o := options()
	o.GracefulShutdownTimeout = new(time.Duration(0))
	if _, err := controllerlease.New(k, name, o); !errors.Is(err, leasekeeper.ErrInvalid) {
		t.Error(err)
	}
	o = options()
	o.RetryPeriod = new(time.Minute)
	if _, err := controllerlease.New(k, name, o); !errors.Is(err, leasekeeper.ErrInvalid) {
		t.Error(err)
	}
}

func TestOptionsAreThoseOfTheElection(t *testing.T) {
	k, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Shutdown(t.Context())
	o := options()
	o.LeaseDuration, o.RenewDeadline, o.LeaderElectionReleaseOnCancel = new(30*time.Second), new(29*time.Second), true
	election, err := controllerlease.New(k, name, o)
	if err != nil {
		t.Fatal(err)
	}
	got := election.Options()
	if !got.LeaderElection || got.LeaderElectionReleaseOnCancel || *got.LeaseDuration != 30*time.Second ||
		*got.RenewDeadline != 16*time.Second || *got.RetryPeriod != 2*time.Second || got.LeaderElectionResourceLockInterface == nil {
		t.Errorf("%+v", got)
	}
}
