package etcd

import "github.com/leasekeeper/leasekeeper/internal/endpoints"

// LeaseIDOf is the etcd lease that a claim makes.
var LeaseIDOf = endpoints.LeaseID
