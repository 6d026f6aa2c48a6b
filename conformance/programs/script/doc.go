// Package script runs scripts that use a client library of etcd, against clusters of both kinds.
//
// One kind of script uses all that its library offers and prints a line for each answer: [Compare] and [Run]. The lines of
// both kinds of cluster must be equal. Another kind works without a pause while the test kills the leader and replaces
// members: [Faults]. Both end with the line "done: all parts", so a script that stops early is noticed.
//
// It serves tests only. It knows no language and no library.
package script
