package etcd

import "github.com/leasekeeper/leasekeeper/internal/ways"

// LeaseIDOf is the etcd lease that a claim makes.
var LeaseIDOf = ways.LeaseID
