// Package deploy tests the files of docs/deploy.
//
// It decodes the manifest for Kubernetes into Kubernetes' own types, and refuses fields that these do not have. It also
// runs the containers of the manifest: each is a process with the manifest's arguments and environment, a network of its
// own, the host name of its pod, and a root directory with nothing but the program, as in the image. The test does to
// them what docs/operations.md says: it restarts one pod after another, adds members, replaces a member whose volume is
// lost, and removes members.
//
// It is a module of its own, so that users of this library do not download Kubernetes' types.
package deploy
