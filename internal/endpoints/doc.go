// Package endpoints connects a backend to a store over gRPC, through one or more endpoints of one cluster.
//
// It promises three things. It makes a request at one endpoint after the other, within bounds, until one answers. The
// [Outcome] says whether an attempt may have had an effect. And Close waits for every call, and for every goroutine that
// [Set.Spawn] has started.
//
// How it works. One endpoint is preferred, until a request leaves it. The preferred endpoint is a number that [Set.Leave]
// increments, so many requests that fail at the same endpoint leave it once. Only the backend knows what an answer means:
// the functions in [Store] say so. The package also has what all such backends share: URLs (url.go), the errors of requests
// (outcome.go), retries of streams (retry.go), and checks of claims and leases (lease.go).
//
// It does not send requests of its own, and does not know any service.
package endpoints
