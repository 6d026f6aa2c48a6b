// Package endpoints connects a backend to a store that is reached by gRPC: to one or several endpoints, by one
// connection each, of which one is preferred until it disappoints.
//
// It promises that a request is made at one endpoint after the other, within bounds, until one answers; that
// the outcome says whether an attempt may have had an effect; and that Close waits for every call, and every
// goroutine started by [Set.Spawn].
//
// How it works: the preferred endpoint is a number that counts on when somebody leaves it, so that many who are
// disappointed by the same endpoint leave it once. What an answer means only the backend knows: it says so by
// [Store.Answered] and [Store.Elsewhere]. A URL is read here as well, since the parameters of all such stores
// are the same.
//
// It never sends anything of its own, and knows no service.
package endpoints
