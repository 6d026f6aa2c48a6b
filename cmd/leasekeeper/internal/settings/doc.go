// Package settings finds and checks the user's settings: in flags, in the environment, in a configuration file, or by
// default.
//
// Each setting comes from the first of these places that has it. [Server] holds the settings of `serve`, [Cluster] the
// values derived from them for a member of a cluster, and [Names] the settings of the commands that use a store. The
// package also chooses the local store if the user names none. It never starts a server and never opens a store.
package settings
