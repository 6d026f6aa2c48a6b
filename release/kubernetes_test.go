package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Kubernetes knows every field of the manifest, and the manifest names the image of this version.
func TestManifestNamesTheImageOfThisVersion(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	text, err := os.ReadFile(filepath.Join(built(t).out, "leasekeeper_0.1.0_kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]int)
	for i, document := range bytes.Split(text, []byte("\n---\n")) {
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
		kinds[kind.Kind]++
		if set, ok := object.(*appsv1.StatefulSet); ok {
			if image := set.Spec.Template.Spec.Containers[0].Image; image != publishedImage+":0.1.0" {
				t.Errorf("the pods run the image %s", image)
			}
		}
	}
	if kinds["StatefulSet"] != 1 || kinds["Service"] != 2 || kinds["PodDisruptionBudget"] != 1 {
		t.Errorf("the manifest has %v", kinds)
	}
}
