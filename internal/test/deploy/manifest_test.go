package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// manifest is what the file for Kubernetes has.
type manifest struct {
	peers, clients *corev1.Service // the headless one, and the one for clients
	budget         *policyv1.PodDisruptionBudget
	set            *appsv1.StatefulSet
}

// readManifest decodes the file strictly: it fails at a field that Kubernetes does not know, and at one that is there twice.
func readManifest(t testing.TB) manifest {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "deploy", "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	for i, document := range bytes.Split(text, []byte("\n---\n")) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
		switch o := object.(type) {
		case *corev1.Service:
			if o.Spec.ClusterIP == corev1.ClusterIPNone {
				m.peers = o
			} else {
				m.clients = o
			}
		case *policyv1.PodDisruptionBudget:
			m.budget = o
		case *appsv1.StatefulSet:
			m.set = o
		default:
			t.Fatalf("document %d is a %T", i+1, object)
		}
	}
	if m.peers == nil || m.clients == nil || m.budget == nil || m.set == nil {
		t.Fatalf("the manifest lacks an object: %+v", m)
	}
	return m
}

// container returns the only container of a pod.
func (m manifest) container() corev1.Container { return m.set.Spec.Template.Spec.Containers[0] }

// port returns the number of a port that a probe or a Service names.
func (m manifest) port(t testing.TB, p intstr.IntOrString) int32 {
	t.Helper()
	if p.Type == intstr.Int {
		return p.IntVal
	}
	for _, known := range m.container().Ports {
		if known.Name == p.StrVal {
			return known.ContainerPort
		}
	}
	t.Fatalf("no port is called %q", p.StrVal)
	return 0
}

// The objects of the manifest belong together: what one names, another has.
func TestManifestIsConsistent(t *testing.T) {
	m := readManifest(t)
	pods := labels.Set(m.set.Spec.Template.Labels)
	selects := func(what string, selector map[string]string) {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pods) {
			t.Errorf("%s selects %v, and the pods have %v", what, selector, pods)
		}
	}
	selects("the StatefulSet", m.set.Spec.Selector.MatchLabels)
	selects("the Service for members", m.peers.Spec.Selector)
	selects("the Service for clients", m.clients.Spec.Selector)
	selects("the PodDisruptionBudget", m.budget.Spec.Selector.MatchLabels)
	for _, term := range m.set.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selects("the affinity", term.LabelSelector.MatchLabels)
	}
	if m.set.Spec.ServiceName != m.peers.Name {
		t.Errorf("the pods have their names from the Service %q, which is not %q", m.set.Spec.ServiceName, m.peers.Name)
	}
	c := m.container()
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p := m.port(t, probe.HTTPGet.Port); p == 0 {
			t.Error("a probe has no port")
		}
	}
	for _, s := range []*corev1.Service{m.peers, m.clients} {
		for _, p := range s.Spec.Ports {
			m.port(t, intstr.FromString(p.Name))
		}
	}
	volumes := make(map[string]bool)
	for _, v := range m.set.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, claim := range m.set.Spec.VolumeClaimTemplates {
		volumes[claim.Name] = true
	}
	for _, mount := range c.VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("%s is mounted at %s and is no volume", mount.Name, mount.MountPath)
		}
	}
}

// A Service sets variables in the pods of its namespace. Those of a Service whose name begins with leasekeeper- look like
// settings of the server, which refuses unknown ones.
func TestPodsReceiveNoVariablesOfServices(t *testing.T) {
	if links := readManifest(t).set.Spec.Template.Spec.EnableServiceLinks; links == nil || *links {
		t.Error("enableServiceLinks is not false")
	}
}

// A rollout waits for a member until it votes again, and Kubernetes waits longer for the end of a member than that takes.
func TestRolloutWaitsForMembers(t *testing.T) {
	set := readManifest(t).set
	if set.Spec.MinReadySeconds < 1 {
		t.Errorf("minReadySeconds is %d: a member does not vote in the first second", set.Spec.MinReadySeconds)
	}
	if s := set.Spec.Template.Spec.TerminationGracePeriodSeconds; s == nil || *s <= 43 {
		t.Errorf("terminationGracePeriodSeconds is %v: a member hands over for up to 3 s, and takes up to 10 s each for requests, its removal, its data and the other members", s)
	}
	if s := set.Spec.UpdateStrategy; s.Type != "" && s.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		t.Errorf("pods are updated by %v", s)
	}
	if set.Spec.PersistentVolumeClaimRetentionPolicy != nil {
		t.Error("volumes may be deleted with their pods")
	}
}
