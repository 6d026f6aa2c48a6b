package etcd

// LeaseIDOf is the etcd lease that a claim makes.
var LeaseIDOf = leaseID
