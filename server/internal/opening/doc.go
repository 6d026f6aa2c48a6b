// Package opening reads how a connection begins, and gives its bytes back.
//
// A server that serves several protocols on one port reads the first bytes of a connection to tell them apart:
// [StartsWithPreface] and [FirstContentType]. A [Recorder] keeps these bytes, and [Replay] makes a connection that yields them
// again to what serves the protocol. A [Handed] is the listener through which that receives the connection.
//
// It never decides about a connection, sets a deadline or writes. It keeps at most as many bytes as its caller allows.
package opening
