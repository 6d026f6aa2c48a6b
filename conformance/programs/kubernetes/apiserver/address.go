package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/reconcilers"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

// address is the record of an API server's address, for other API servers. It ends with its lease in the store, which the API
// server replaces again and again. So the record outlives its API server by the lease at most.
type address struct {
	name string        // of the API server; empty: it has no record
	ttl  time.Duration // of the lease
}

// addFlags adds the flags of the record.
func (a *address) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.name, "address-name", "", "name under which this API server records its address; empty: it does not")
	flags.DurationVar(&a.ttl, "address-ttl", 15*time.Second, "TTL of the address")
}

// run keeps the record until the context ends, and leaves it to its lease then. It must run in a goroutine of its own.
func (a *address) run(ctx context.Context, store storagebackend.Config) error {
	config := store.ForResource(schema.GroupResource{Resource: "apiServerPeerIPInfo"})
	config.Codec = scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)
	records, err := reconcilers.NewPeerEndpointLeaseReconciler(config, "/peerserverleases", a.ttl)
	if err != nil {
		return fmt.Errorf("the record of the address: %w", err)
	}
	defer records.Destroy()
	ports := []corev1.EndpointPort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}
	ticker := time.NewTicker(a.ttl / 4)
	defer ticker.Stop()
	for {
		// The next attempt follows in any case.
		if err := records.UpdateLease(a.name, "127.0.0.1", ports); err != nil {
			klog.ErrorS(err, "cannot record the address")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
