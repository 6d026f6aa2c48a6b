package remote

// LeaseIDOf is the id of the lease that a claim makes.
var LeaseIDOf = leaseID
