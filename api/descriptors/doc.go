// Package descriptors describes messages and services of etcd's API so that others can read it.
//
// The descriptions that etcd's Go module has compiled in import each other under paths by which they are not
// registered, so a program that follows an import, as gRPC's reflection and protoc do, finds nothing. [Files]
// returns them with imports that lead somewhere. It changes nothing that is registered.
package descriptors
