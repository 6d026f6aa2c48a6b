// Package settings finds and checks what the user has set: in flags, in the environment, in a configuration file, or by
// default.
//
// A value is taken from the first of these places that has it. [Server] holds the settings of `serve`, [Cluster] what
// follows from them for a member of a cluster, and [Names] the settings of the commands that use a store. The package
// also knows where leases are kept if no store is named. It never starts a server and never opens a store.
package settings
